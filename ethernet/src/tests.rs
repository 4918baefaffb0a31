use std::{net::IpAddr, time::Duration};

use roce_transport::{
    adapter::Transmit,
    addr::RoceVersion,
    time::Instant,
    wire::{FrameFields, Ident, NetHeader, checksum},
};

use super::{build::Ethernet, neighbors::Neighbors, *};

mod captured;
mod groups;
mod headers;
mod leasing;
mod pauses;

const MACS: [MacAddr; 3] =
    [MacAddr(2, 0, 0, 0, 0, 1), MacAddr(2, 0, 0, 0, 0, 2), MacAddr(2, 0, 0, 0, 0, 3)];
const SECOND: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(src: &str, dst: &str) -> NetHeader {
    NetHeader {
        src: ip(src),
        dst: ip(dst),
        src_port: 0xC001,
        traffic_class: 0,
        hop_limit: 64,
        ident: Ident::Known { id: 0, dont_fragment: true },
        frame: FrameFields::default(),
    }
}

fn config(mac: MacAddr, addresses: &[&str]) -> StationConfig {
    let prefix = |text: &&str| {
        let (address, length) = text.split_once('/').unwrap();
        Prefix { address: ip(address), length: length.parse().unwrap() }
    };
    StationConfig {
        mac,
        vlan: None,
        addresses: addresses.iter().map(prefix).collect(),
        gateways: Vec::new(),
        replies: true,
        roce_v1: false,
        dhcp: None,
        mbps: 10_000,
    }
}

fn run(src: &str, dst: &str, payload: &[u8]) -> Transmit {
    Transmit {
        src: ip(src),
        dst: ip(dst),
        src_port: 0xC123,
        traffic_class: 0xB9,
        hop_limit: 3,
        segment: payload.len(),
        range: 0..payload.len(),
        frame: FrameFields::default(),
    }
}

fn frames(station: &mut Station) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| station.poll_frame()).collect()
}

/// Stations on a wire without delay.
struct Wire {
    stations: Vec<Station>,
    now: Instant,
    /// Every frame; arrivals are station, network header and payload.
    seen: Vec<Vec<u8>>,
    arrived: Vec<(usize, NetHeader, Vec<u8>)>,
}

impl Wire {
    fn new(configs: impl IntoIterator<Item = StationConfig>) -> Self {
        let now = Instant::from_nanos(1);
        let stations = configs.into_iter().map(|config| Station::new(config, now)).collect();
        Self { stations, now, seen: Vec::new(), arrived: Vec::new() }
    }

    fn assigned(configs: impl IntoIterator<Item = StationConfig>) -> Self {
        let mut wire = Self::new(configs);
        wire.advance(2 * SECOND);
        for station in &wire.stations {
            assert_eq!(station.assignment(), Assignment::Assigned);
        }
        wire.seen.clear();
        wire
    }

    fn pair() -> Self {
        Self::assigned([
            config(MACS[0], &["10.0.0.1/24", "fd00::1/64"]),
            config(MACS[1], &["10.0.0.2/24", "fd00::2/64"]),
        ])
    }

    fn carry(&mut self) {
        loop {
            let sent = (0..self.stations.len())
                .find_map(|from| self.stations[from].poll_frame().map(|frame| (from, frame)));
            let Some((from, frame)) = sent else { return };
            assert!(frame.len() >= 60, "short frames are padded");
            for to in (0..self.stations.len()).filter(|&to| to != from) {
                if let Some(Received { net, bytes }) =
                    self.stations[to].handle_frame(self.now, &frame, false)
                {
                    self.arrived.push((to, net, bytes.to_vec()));
                }
            }
            self.seen.push(frame);
        }
    }

    fn advance(&mut self, time: Duration) {
        let end = self.now.plus(time);
        loop {
            self.carry();
            let due = self.stations.iter().filter_map(Station::poll_timeout).min();
            let Some(due) = due.filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            let now = self.now;
            self.stations.iter_mut().for_each(|station| station.handle_timeout(now));
        }
        self.now = end;
    }

    fn send(&mut self, from: usize, src: &str, dst: &str) -> Hop {
        self.send_with(from, src, dst, FrameFields::default())
    }

    fn send_with(&mut self, from: usize, src: &str, dst: &str, frame: FrameFields) -> Hop {
        let (now, payload) = (self.now, *b"payload of a packet");
        let run = Transmit { frame, ..run(src, dst, &payload) };
        let station = &mut self.stations[from];
        let hop = station.route(now, run.dst);
        match hop {
            Hop::Resolving(next) => station.wait(next, &run, &payload),
            Hop::Known(mac) => {
                let mut frame = station.headers(mac, &run, payload.len());
                frame.extend(payload);
                self.seen.push(frame.clone());
                for to in (0..self.stations.len()).filter(|&to| to != from) {
                    let received = self.stations[to].handle_frame(now, &frame, false);
                    if let Some(Received { net, bytes }) = received {
                        self.arrived.push((to, net, bytes.to_vec()));
                    }
                }
            }
            Hop::Own | Hop::None => {}
        }
        self.carry();
        hop
    }

    fn counters(&self, station: usize) -> FrameCounters {
        *self.stations[station].counters()
    }
}

#[test]
fn what_waits_for_a_neighbour_arrives_with_all_its_fields() {
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let mut wire = Wire::pair();
        assert_eq!(wire.send(0, src, dst), Hop::Resolving(ip(dst)));
        let net = NetHeader {
            src: ip(src),
            dst: ip(dst),
            src_port: 0xC123,
            traffic_class: 0xB9,
            hop_limit: 3,
            ident: Ident::Known { id: 0, dont_fragment: true },
            frame: FrameFields::default(),
        };
        assert_eq!(wire.arrived, [(1, net, b"payload of a packet".to_vec())]);
        // The request left no entry at the other station.
        assert_eq!(wire.send(0, src, dst), Hop::Known(MACS[1]));
        assert_eq!(wire.arrived.len(), 2);
        assert_eq!((wire.counters(0).resolved, wire.counters(1).answered), (1, 1));
        assert_eq!(wire.send(1, dst, src), Hop::Resolving(ip(src)));
        assert_eq!(wire.arrived.len(), 3);
    }
}

#[test]
fn a_long_message_waits_whole() {
    let mut wire = Wire::pair();
    let payload = [7; 256 * 272];
    let long = Transmit { segment: 272, ..run("10.0.0.1", "10.0.0.2", &payload) };
    let now = wire.now;
    assert_eq!(wire.stations[0].route(now, long.dst), Hop::Resolving(long.dst));
    wire.stations[0].wait(long.dst, &long, &payload);
    wire.carry();
    assert_eq!((wire.arrived.len(), wire.counters(0).waiting_lost), (256, 0));
}

#[test]
fn a_neighbour_is_asked_three_times_a_second_apart() {
    for dst in ["10.0.0.7", "fd00::7"] {
        let mut wire = Wire::pair();
        let src = if dst.contains(':') { "fd00::1" } else { "10.0.0.1" };
        for _ in 0..262 {
            wire.send(0, src, dst);
        }
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(wire.seen.len());
            wire.advance(SECOND);
        }
        assert_eq!(asked, [1, 2, 3, 3]);
        assert_eq!(wire.stations[0].poll_timeout(), None);
        let FrameCounters { unanswered, waiting_lost, .. } = wire.counters(0);
        assert_eq!((unanswered, waiting_lost), (1, 262), "six for want of room, then the others");
        assert_eq!(wire.send(0, src, dst), Hop::Resolving(ip(dst)));
        assert_eq!(wire.seen.len(), 4);
    }
}

#[test]
fn a_lost_solicitation_is_retransmitted() {
    let mut wire = Wire::pair();
    let payload = *b"x";
    let lost = run("10.0.0.1", "10.0.0.2", &payload);
    let now = wire.now;
    let hop = wire.stations[0].route(now, lost.dst);
    assert_eq!(hop, Hop::Resolving(lost.dst));
    wire.stations[0].wait(lost.dst, &lost, &payload);
    assert_eq!(frames(&mut wire.stations[0]).len(), 1, "which nobody gets");
    wire.advance(SECOND);
    assert_eq!(wire.arrived.len(), 1);
}

#[test]
fn a_neighbour_is_solicited_again_when_its_reply_is_old() {
    let mut wire = Wire::pair();
    wire.send(0, "10.0.0.1", "10.0.0.2");
    wire.advance(40 * SECOND);
    let seen = wire.seen.len();
    assert_eq!(wire.send(0, "10.0.0.1", "10.0.0.2"), Hop::Known(MACS[1]), "it is used meanwhile");
    assert_eq!(wire.seen.len(), seen + 3, "the datagram, a unicast solicitation, its reply");
    assert_eq!(wire.seen[seen + 1][..6], MACS[1].octets());
    // A neighbour that left stays in use while solicited.
    wire.advance(40 * SECOND);
    wire.stations.truncate(1);
    for _ in 0..3 {
        assert_eq!(wire.send(0, "10.0.0.1", "10.0.0.2"), Hop::Known(MACS[1]));
        wire.advance(SECOND);
    }
    assert_eq!(wire.send(0, "10.0.0.1", "10.0.0.2"), Hop::Resolving(ip("10.0.0.2")));
    assert_eq!(wire.counters(0).unanswered, 1);
}

#[test]
fn a_changed_mac_address_is_taken_over() {
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let mut wire = Wire::pair();
        wire.send(0, src, dst);
        let now = wire.now;
        wire.stations[1] = Station::new(config(MACS[2], &["10.0.0.2/24", "fd00::2/64"]), now);
        assert_eq!(wire.send(0, src, dst), Hop::Known(MACS[1]), "nobody has said anything yet");
        assert_eq!(wire.arrived.len(), 1);
        wire.advance(2 * SECOND);
        assert_eq!(wire.send(0, src, dst), Hop::Known(MACS[2]));
        assert_eq!((wire.arrived.len(), wire.counters(0).moved), (2, 1));
    }
}

#[test]
fn an_address_that_somebody_has_is_not_taken() {
    for address in ["10.0.0.2/24", "fd00::2/64"] {
        let mut wire = Wire::pair();
        let now = wire.now;
        wire.stations.push(Station::new(config(MACS[2], &[address]), now));
        wire.advance(2 * SECOND);
        let (address, _) = address.split_once('/').unwrap();
        let taken = Assignment::Taken { address: ip(address), mac: MACS[1] };
        assert_eq!(wire.stations[2].assignment(), taken);
        assert_eq!(wire.stations[2].poll_timeout(), None);
        assert_eq!(wire.stations[1].assignment(), Assignment::Assigned);
        let src = if address.contains(':') { "fd00::1" } else { "10.0.0.1" };
        wire.send(0, src, address);
        assert_eq!(wire.arrived.last().map(|&(to, ..)| to), Some(1));
    }
}

#[test]
fn two_that_want_an_address_at_the_same_time_both_leave_it() {
    for address in ["10.0.0.5/24", "fd00::5/64"] {
        let mut wire = Wire::new([config(MACS[0], &[address]), config(MACS[1], &[address])]);
        wire.advance(2 * SECOND);
        for station in &wire.stations {
            assert!(matches!(station.assignment(), Assignment::Taken { .. }));
        }
    }
}

#[test]
fn nothing_is_replied_before_the_address_is_assigned() {
    let mut wire = Wire::pair();
    let now = wire.now;
    wire.stations.push(Station::new(config(MACS[2], &["10.0.0.3/24"]), now));
    wire.send(0, "10.0.0.1", "10.0.0.3");
    assert_eq!(wire.counters(2).answered, 0);
    wire.advance(2 * SECOND);
    assert_eq!(
        (wire.counters(2).answered, wire.arrived.len()),
        (0, 1),
        "its announcement resolved it"
    );
}

#[test]
fn another_host_that_claims_an_own_address_gets_one_reply_in_ten_seconds() {
    let mut wire = Wire::pair();
    let sender = Ethernet { dst: MacAddr::broadcast(), src: MACS[2], vlan: None };
    let claim = sender.arp(
        smoltcp::wire::ArpOperation::Request,
        (MACS[2], [10, 0, 0, 1].into()),
        (MacAddr::zero(), [10, 0, 0, 1].into()),
    );
    for (wait, replies) in [(0, 1), (3, 0), (3, 0), (4, 1)] {
        wire.advance(wait * SECOND);
        let now = wire.now;
        assert!(wire.stations[0].handle_frame(now, &claim, false).is_none());
        assert_eq!(frames(&mut wire.stations[0]).len(), replies);
        let event = StationEvent::Conflict { address: ip("10.0.0.1"), mac: MACS[2] };
        assert_eq!(wire.stations[0].poll_event(), (replies > 0).then_some(event));
    }
    assert_eq!(wire.counters(0).conflicts, 4);
}

#[test]
fn a_flood_fills_no_table() {
    let mut wire = Wire::pair();
    let now = wire.now;
    let station = &mut wire.stations[0];
    for number in 0..5000_u32 {
        let [_, _, high, low] = number.to_be_bytes();
        let sender = Ethernet { dst: MACS[0], src: MACS[2], vlan: None };
        let from = [10, 0, high, low].into();
        let operation = match number % 2 {
            0 => smoltcp::wire::ArpOperation::Reply,
            _ => smoltcp::wire::ArpOperation::Request,
        };
        let frame = sender.arp(operation, (MACS[2], from), (MACS[0], [10, 0, 0, 1].into()));
        station.handle_frame(now, &frame, false);
    }
    assert!(frames(station).len() <= 512, "replies are bounded, too");
    assert_eq!(station.route(now, ip("10.0.0.77")), Hop::Resolving(ip("10.0.0.77")));

    // A peer can make us send to any address.
    let mut counters = FrameCounters::default();
    let mut table = Neighbors::default();
    let known = ip("192.0.2.1");
    table.lookup(now, known, &mut counters);
    table.learn(now, known, MACS[1], neighbors::Claim::Reply, &mut counters);
    for number in 0..5000_u32 {
        let address = IpAddr::from(number.to_be_bytes());
        table.lookup(now, address, &mut counters);
        table.wait(address, (0, vec![0; 9000]), &mut counters);
    }
    assert_eq!((table.len(), counters.table_full), (257, 5000 - 256));
    assert_eq!(table.lookup(now, known, &mut counters), Hop::Known(MACS[1]), "what is known stays");
    assert!(counters.waiting_lost >= 5000 - (4 << 20) / 9000 - 1);
    // Responses fill the table.
    let mut at = now;
    for number in 0..3000_u32 {
        let address = IpAddr::from([172, 16, (number >> 8) as u8, number as u8]);
        at = at.plus(SECOND);
        table.handle_timeout(at, &mut counters);
        table.lookup(at, address, &mut counters);
        table.learn(at, address, MACS[1], neighbors::Claim::Reply, &mut counters);
        table.lookup(at, known, &mut counters);
        table.learn(at, known, MACS[1], neighbors::Claim::Reply, &mut counters);
    }
    assert!(table.len() <= 1024);
    let lookup = table.lookup(at, known, &mut counters);
    assert_eq!(lookup, Hop::Known(MACS[1]));
}

#[test]
fn other_networks_are_behind_the_gateway() {
    let mut first = config(MACS[0], &["10.0.0.1/24", "fd00::1/64"]);
    first.gateways = vec![ip("10.0.0.2")];
    let mut wire = Wire::assigned([first, config(MACS[1], &["10.0.0.2/24"])]);
    let now = wire.now;
    let station = &mut wire.stations[0];
    assert_eq!(station.route(now, ip("192.0.2.1")), Hop::Resolving(ip("10.0.0.2")));
    assert_eq!(station.route(now, ip("2001:db8::1")), Hop::None, "for which there is none");
    assert_eq!(station.route(now, ip("fe80::1")), Hop::Resolving(ip("fe80::1")));
    assert_eq!(station.route(now, ip("10.0.0.1")), Hop::Own);
    assert_eq!(station.route(now, ip("239.1.130.3")), Hop::Known(MacAddr(1, 0, 0x5E, 1, 130, 3)));
    let group = MacAddr(0x33, 0x33, 0, 1, 0, 2);
    assert_eq!(station.route(now, ip("ff12::1:2")), Hop::Known(group));
    assert_eq!(station.counters().no_route, 1);
    wire.carry();
    assert_eq!(wire.send(0, "10.0.0.1", "192.0.2.1"), Hop::Known(MACS[1]));
}

#[test]
fn echo_requests_get_replies() {
    use smoltcp::wire::{Icmpv4Repr, Icmpv6Repr};
    let mut wire = Wire::pair();
    let now = wire.now;
    let peer = Ethernet { dst: MACS[0], src: MACS[2], vlan: None };
    let request = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 9, data: &[5; 1400] };
    let ip4 = build::Ip {
        src: ip("10.0.0.9"),
        dst: ip("10.0.0.1"),
        traffic_class: 0x2E << 2,
        hop_limit: 1,
    };
    let frame = peer.icmpv4(ip4, &request);
    wire.stations[0].handle_frame(now, &frame, false);
    let request = Icmpv6Repr::EchoRequest { ident: 7, seq_no: 9, data: &[5; 1400] };
    let [own, other] = [[0xFD00, 0, 0, 0, 0, 0, 0, 1], [0xFD00, 0, 0, 0, 0, 0, 0, 9]];
    let frame = peer.icmpv6(other.into(), own.into(), 1, &request);
    wire.stations[0].handle_frame(now, &frame, false);
    let mut broken = frame.clone();
    *broken.last_mut().unwrap() ^= 1;
    wire.stations[0].handle_frame(now, &broken, false);
    let replies = frames(&mut wire.stations[0]);
    assert_eq!(replies.len(), 2);
    for (reply, (at, kind)) in replies.iter().zip([(34, 0), (54, 129)]) {
        let frame = Frame::parse(reply).unwrap();
        assert_eq!((frame.dst, frame.src), (MACS[2], MACS[0]));
        let Packet::Ip(packet) = frame.packet else { panic!("{frame:?}") };
        assert_eq!((reply[at], packet.payload.len(), packet.hop_limit), (kind, 1408, 64));
        assert_eq!(packet.payload[4..], [&[0, 7, 0, 9][..], &[5; 1400]].concat());
    }
    assert_eq!((wire.counters(0).answered, wire.counters(0).bad_arp), (2, 1));
}

#[test]
fn a_report_of_a_narrow_path_is_advice_about_own_packets_only() {
    let mut wire = Wire::pair();
    let now = wire.now;
    let station = &mut wire.stations[0];
    let report = |src: &str, dst: &str, mtu: u16| {
        let quoted = Ethernet { dst: MACS[1], src: MACS[0], vlan: None };
        let data = vec![0; 1500];
        let quoted = &quoted.roce(&net(src, dst), &data)[14..42];
        let mut message = vec![3, 4, 0, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend_from_slice(quoted);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = Ethernet { dst: MACS[0], src: MACS[2], vlan: None }
            .roce_headers(&net("192.0.2.254", "10.0.0.1"), message.len() - 8);
        frame.truncate(34);
        frame[23] = 1;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend(message);
        frame
    };
    let to = ip("198.51.100.1");
    for (frame, known) in [
        (report("10.0.0.9", "198.51.100.1", 1000), None), // about another's packet
        (report("10.0.0.1", "198.51.100.1", 100), None),  // narrower than any path
        (report("10.0.0.1", "198.51.100.1", 1000), Some(1000)),
    ] {
        station.handle_frame(now, &frame, false);
        assert_eq!(station.path_mtu(now, to), known);
    }
    assert_eq!(station.poll_event(), Some(StationEvent::PathMtu { to, mtu: 1000 }));
    assert_eq!(station.path_mtu(now.plus(601 * SECOND), to), None);
    for last in 0..=255_u32 {
        let now = now.plus(SECOND * (last + 1));
        let frame = report("10.0.0.1", &format!("203.0.113.{last}"), 1000);
        station.handle_frame(now, &frame, false);
    }
    assert_eq!(station.path_mtu(now, to), None, "the table is bounded, the oldest goes");
    assert_eq!(station.counters().path_mtu, 257);
}

#[test]
fn a_station_that_borrows_its_addresses_solicits_and_does_not_reply() {
    let borrowed = StationConfig { replies: false, ..config(MACS[0], &["10.0.0.1/24"]) };
    let mut wire = Wire::assigned([borrowed, config(MACS[1], &["10.0.0.2/24"])]);
    wire.send(1, "10.0.0.2", "10.0.0.1");
    assert_eq!(wire.arrived.len(), 0, "the kernel would reply");
    wire.send(0, "10.0.0.1", "10.0.0.2");
    // The request resolved the other's queue, too.
    assert_eq!(wire.arrived.iter().map(|&(to, ..)| to).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((wire.counters(0).answered, wire.counters(0).resolved), (0, 1));
}
