use std::net::Ipv4Addr;

use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, UdpPacket};

use super::*;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 57);

fn leasing(vlan: Option<Vlan>) -> StationConfig {
    StationConfig { dhcp: Some([3; 32]), vlan, ..config(MACS[0], &[]) }
}

/// The server's reply.
fn reply(frame: &[u8], vlan: Option<Vlan>, to: IpAddr, router: Ipv4Addr) -> Option<Vec<u8>> {
    let Packet::Ip(packet) = Frame::parse(frame).unwrap().packet else { return None };
    if packet.protocol != 17 {
        return None;
    }
    let udp = UdpPacket::new_checked(packet.payload).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port()), (68, 67));
    assert!(udp.verify_checksum(&packet.src.into(), &packet.dst.into()) && udp.checksum() != 0);
    let packet = DhcpPacket::new_checked(udp.payload()).unwrap();
    let asked = DhcpRepr::parse(&packet).unwrap();
    let kind = match asked.message_type {
        DhcpMessageType::Discover => DhcpMessageType::Offer,
        DhcpMessageType::Request => DhcpMessageType::Ack,
        _ => return None,
    };
    let repr = DhcpRepr {
        message_type: kind,
        your_ip: ADDRESS,
        server_identifier: Some(SERVER),
        lease_duration: Some(120),
        subnet_mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        router: Some(router),
        client_identifier: None,
        requested_ip: None,
        parameter_request_list: None,
        client_hardware_address: EthernetAddress(MACS[0].octets()),
        ..asked
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
    let IpAddr::V4(to) = to else { panic!("{to} is none of DHCP's") };
    let dst = if to.is_broadcast() { MacAddr::broadcast() } else { MACS[0] };
    let ethernet = Ethernet { dst, src: MACS[1], vlan };
    Some(ethernet.udp((SERVER, 67), (to, 68), &bytes))
}

/// Runs a station against a server that grants `to`, and returns the other frames.
fn serve(
    station: &mut Station,
    now: &mut Instant,
    time: Duration,
    to: IpAddr,
    router: Ipv4Addr,
) -> Vec<Vec<u8>> {
    let (end, vlan, mut rest) = (now.plus(time), station.config().vlan, Vec::new());
    loop {
        station.handle_timeout(*now);
        while let Some(frame) = station.poll_frame() {
            match reply(&frame, vlan, to, router) {
                Some(reply) => assert_eq!(station.handle_frame(*now, &reply, false), None),
                None => rest.push(frame),
            }
        }
        match station.poll_timeout().filter(|due| *due <= end) {
            Some(due) => *now = due.max(*now),
            None => break,
        }
    }
    *now = end;
    rest
}

#[test]
fn a_leased_address_is_used_like_a_given_one() {
    for vlan in [None, Some(Vlan { id: 100, priority: 3 })] {
        for to in [IpAddr::from(ADDRESS), Ipv4Addr::BROADCAST.into()] {
            let mut now = Instant::from_nanos(1);
            let mut station = Station::new(leasing(vlan), now);
            assert_eq!(station.assignment(), Assignment::Probing);
            let router = Ipv4Addr::new(10, 0, 0, 254);
            let sent = serve(&mut station, &mut now, SECOND, to, router);
            assert_eq!(station.assignment(), Assignment::Assigned);
            let own = Prefix { address: ADDRESS.into(), length: 24 };
            assert_eq!(station.config().addresses, [own]);
            assert!(station.is_own(ADDRESS.into()));
            assert_eq!(sent.len(), 4);
            let event = StationEvent::Leased { address: ADDRESS.into(), server: SERVER.into() };
            assert_eq!((station.poll_event(), station.poll_event()), (Some(event), None));
            let hop = station.route(now, ip("192.0.2.1"));
            assert_eq!(hop, Hop::Resolving(router.into()), "by the router of the lease");
            // renewed, unchanged
            frames(&mut station);
            serve(&mut station, &mut now, 300 * SECOND, to, router);
            assert_eq!(station.config().addresses, [own]);
            assert!(station.counters().dhcp_leases >= 5, "{:?}", station.counters());
            assert_eq!(station.poll_event(), None);
        }
    }
}

#[test]
fn a_lease_that_runs_out_leaves_the_given_addresses() {
    let mut now = Instant::from_nanos(1);
    let config = StationConfig { dhcp: Some([3; 32]), ..config(MACS[0], &["fd00::1/64"]) };
    let mut station = Station::new(config, now);
    serve(&mut station, &mut now, SECOND, ADDRESS.into(), SERVER);
    assert_eq!(station.config().addresses.len(), 2);
    station.poll_event();
    let end = now.plus(200 * SECOND);
    while let Some(due) = station.poll_timeout().filter(|due| *due < end) {
        station.handle_timeout(due);
        frames(&mut station);
    }
    assert_eq!(station.config().addresses, [Prefix { address: ip("fd00::1"), length: 64 }]);
    assert!(!station.is_own(ADDRESS.into()) && station.lease().is_none());
    assert_eq!(station.poll_event(), Some(StationEvent::LeaseLost { address: ADDRESS.into() }));
    assert_eq!(station.route(end, ip("10.0.0.2")), Hop::None, "there is no way any more");
}

#[test]
fn an_address_that_replies_to_a_probe_is_declined() {
    for probes in [false, true] {
        let mut now = Instant::from_nanos(1);
        let mut station = Station::new(leasing(None), now);
        serve(&mut station, &mut now, SECOND / 2, ADDRESS.into(), SERVER);
        let claim = match probes {
            false => (MACS[2], ADDRESS),
            true => (MACS[2], Ipv4Addr::UNSPECIFIED), // another probe
        };
        let ethernet = Ethernet { dst: MacAddr::broadcast(), src: MACS[2], vlan: None };
        let operation = smoltcp::wire::ArpOperation::Request;
        let claim = ethernet.arp(operation, claim, (MacAddr::zero(), ADDRESS));
        station.handle_frame(now, &claim, false);
        assert_eq!(station.lease_error(), Some(LeaseError::InUse(ADDRESS, MACS[2])));
        assert_eq!((station.assignment(), station.lease()), (Assignment::Probing, None));
        let declined = frames(&mut station);
        assert_eq!(declined.len(), 1, "to the server, and no reply to who asks");
        serve(&mut station, &mut now, 13 * SECOND, ADDRESS.into(), SERVER);
        assert_eq!(station.assignment(), Assignment::Assigned);
        assert_eq!((station.counters().dhcp_declined, station.counters().conflicts), (1, 0));
    }
}

#[test]
fn a_release_goes_to_the_server_that_responded() {
    let mut now = Instant::from_nanos(1);
    let mut station = Station::new(leasing(None), now);
    serve(&mut station, &mut now, SECOND, ADDRESS.into(), SERVER);
    station.release(now);
    let sent = frames(&mut station);
    let [released] = &sent[..] else { panic!("{sent:?}") };
    let frame = Frame::parse(released).unwrap();
    assert_eq!((frame.dst, frame.src), (MACS[1], MACS[0]));
    let Packet::Ip(packet) = frame.packet else { panic!("{frame:?}") };
    assert_eq!((packet.src, packet.dst), (ADDRESS.into(), SERVER.into()));
    assert!(!station.is_own(ADDRESS.into()));
}

#[test]
fn a_given_gateway_is_used_instead_of_the_servers() {
    let mut now = Instant::from_nanos(1);
    let config = StationConfig { gateways: vec![ip("10.0.0.7")], ..leasing(None) };
    let mut station = Station::new(config, now);
    serve(&mut station, &mut now, SECOND, ADDRESS.into(), SERVER);
    assert_eq!(station.route(now, ip("192.0.2.1")), Hop::Resolving(ip("10.0.0.7")));
}

#[test]
fn messages_that_are_not_as_sent_are_counted() {
    let mut now = Instant::from_nanos(1);
    let mut station = Station::new(leasing(None), now);
    let asked = frames(&mut station);
    let good = reply(&asked[0], None, ADDRESS.into(), SERVER).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut of_nobody = good.clone();
    of_nobody[35] = 66; // the port of the sender
    of_nobody[40..42].fill(0); // without a checksum
    for wrong in [&damaged, &of_nobody] {
        assert_eq!(station.handle_frame(now, wrong, false), None);
    }
    assert_eq!((station.counters().dhcp_bad, frames(&mut station).len()), (2, 0));
    let mut unchecked = good.clone();
    unchecked[40..42].fill(0);
    station.handle_frame(now, &unchecked, false);
    assert_eq!(frames(&mut station).len(), 1, "a checksum of zero is none");
    let mut other = Station::new(config(MACS[0], &["10.0.0.57/24"]), now);
    now = now.plus(2 * SECOND);
    other.handle_timeout(now);
    other.handle_frame(now, &good, false);
    assert_eq!(other.counters().other_protocol, 1);
}
