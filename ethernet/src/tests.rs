use std::{net::IpAddr, time::Duration};

use proptest::prelude::*;
use roce_transport::{
    adapter::Transmit,
    addr::RoceVersion,
    time::Instant,
    wire::{FrameFields, IcrcMatch, Ident, NetHeader, verify_icrc},
};

use self::captured::captured;
use super::{build::Ethernet, neighbors::Neighbors, *};

mod captured;
mod groups;
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

/// RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    (!((sum & 0xFFFF) + (sum >> 16)) as u16).to_be_bytes()
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
            Hop::Asked(next) => station.wait(next, &run, &payload),
            Hop::Known(mac) => {
                let mut frame = station.headers(mac, &run, 0, payload.len());
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
        assert_eq!(wire.send(0, src, dst), Hop::Asked(ip(dst)));
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
        assert_eq!(wire.send(1, dst, src), Hop::Asked(ip(src)));
        assert_eq!(wire.arrived.len(), 3);
    }
}

#[test]
fn a_long_message_waits_whole() {
    let mut wire = Wire::pair();
    let payload = [7; 256 * 272];
    let long = Transmit { segment: 272, ..run("10.0.0.1", "10.0.0.2", &payload) };
    let now = wire.now;
    assert_eq!(wire.stations[0].route(now, long.dst), Hop::Asked(long.dst));
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
        assert_eq!(wire.send(0, src, dst), Hop::Asked(ip(dst)));
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
    assert_eq!(hop, Hop::Asked(lost.dst));
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
    assert_eq!(wire.send(0, "10.0.0.1", "10.0.0.2"), Hop::Asked(ip("10.0.0.2")));
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
    assert_eq!(station.route(now, ip("10.0.0.77")), Hop::Asked(ip("10.0.0.77")));

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
    assert_eq!(
        table.lookup(now, known, &mut counters),
        neighbors::Lookup::Known(MACS[1]),
        "what is known stays"
    );
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
    assert_eq!(lookup, neighbors::Lookup::Known(MACS[1]));
}

#[test]
fn other_networks_are_behind_the_gateway() {
    let mut first = config(MACS[0], &["10.0.0.1/24", "fd00::1/64"]);
    first.gateways = vec![ip("10.0.0.2")];
    let mut wire = Wire::assigned([first, config(MACS[1], &["10.0.0.2/24"])]);
    let now = wire.now;
    let station = &mut wire.stations[0];
    assert_eq!(station.route(now, ip("192.0.2.1")), Hop::Asked(ip("10.0.0.2")));
    assert_eq!(station.route(now, ip("2001:db8::1")), Hop::None, "for which there is none");
    assert_eq!(station.route(now, ip("fe80::1")), Hop::Asked(ip("fe80::1")));
    assert_eq!(station.route(now, ip("10.0.0.1")), Hop::Own);
    assert_eq!(station.route(now, ip("239.1.130.3")), Hop::Known(MacAddr(1, 0, 0x5E, 1, 130, 3)));
    let group = MacAddr(0x33, 0x33, 0, 1, 0, 2);
    assert_eq!(station.route(now, ip("ff12::1:2")), Hop::Known(group));
    assert_eq!(station.counters().no_route, 1);
    wire.carry();
    assert_eq!(wire.send(0, "10.0.0.1", "192.0.2.1"), Hop::Known(MACS[1]));
}

#[test]
fn frames_of_the_vlan_only() {
    let tagged = |mac, address, id| {
        let vlan = Some(Vlan { id, priority: 5 });
        StationConfig { vlan, ..config(mac, &[address]) }
    };
    let mut wire = Wire::assigned([
        tagged(MACS[0], "10.0.0.1/24", 100),
        tagged(MACS[1], "10.0.0.2/24", 100),
        tagged(MACS[2], "10.0.0.2/24", 101),
    ]);
    wire.send(0, "10.0.0.1", "10.0.0.2");
    assert_eq!(wire.arrived.iter().map(|&(to, ..)| to).collect::<Vec<_>>(), [1]);
    for frame in &wire.seen {
        assert_eq!(frame[12..16], [0x81, 0, 0xA0, 100], "the tag, priority 5, VLAN 100");
    }
    assert!(wire.counters(2).other_vlan > 0);
    // The receiver removed the tag.
    let mut untagged = wire.seen.last().unwrap().clone();
    let whole = untagged.clone();
    untagged.drain(12..16);
    let now = wire.now;
    assert!(wire.stations[1].handle_frame(now, &untagged, false).is_none());
    assert!(wire.stations[1].handle_frame(now, &untagged, true).is_some());
    assert!(wire.stations[1].handle_frame(now, &whole, true).is_none());
    assert_eq!(wire.counters(1).vlan_stack, 1);
    // A priority tag is no VLAN.
    let mut plain = Wire::pair();
    let mut frame = whole.clone();
    frame[14..16].copy_from_slice(&[0xE0, 0]);
    assert!(plain.stations[1].handle_frame(now, &frame, false).is_some());
}

#[test]
fn a_service_level_has_its_priority() {
    let tagged = |mac, address| StationConfig {
        vlan: Some(Vlan { id: 100, priority: 5 }),
        ..config(mac, &[address])
    };
    let mut wire = Wire::assigned([tagged(MACS[0], "10.0.0.1/24"), tagged(MACS[1], "10.0.0.2/24")]);
    let priority = |wire: &Wire| wire.seen.last().unwrap()[14] >> 5;
    for (service_level, expected) in [(0, 5), (1, 1), (7, 7), (3, 3), (8, 5), (10, 2)] {
        let frame = FrameFields::new(RoceVersion::V2, service_level, 0);
        wire.send_with(0, "10.0.0.1", "10.0.0.2", frame);
        assert_eq!(priority(&wire), expected, "service level {service_level}");
    }
    assert_eq!(wire.arrived.len(), 6);
}

#[test]
fn a_flow_label_arrives_over_ipv6() {
    let mut wire = Wire::pair();
    let frame = FrameFields::new(RoceVersion::V2, 0, 0xA_BCDE);
    wire.send_with(0, "fd00::1", "fd00::2", frame);
    wire.send_with(0, "fd00::1", "fd00::2", frame);
    assert!(wire.arrived.iter().all(|(_, net, _)| net.frame == frame && net.traffic_class == 0xB9));
    wire.send_with(0, "10.0.0.1", "10.0.0.2", frame);
    let labels: Vec<_> = wire.arrived.iter().map(|(_, net, _)| net.frame.flow_label()).collect();
    assert_eq!(labels, [0xA_BCDE, 0xA_BCDE, 0], "IPv4 has none");
}

/// Annex A16: ethertype 0x8915, a GRH instead of IP and UDP.
#[test]
fn roce_v1_goes_to_who_speaks_it() {
    let v1 = |mac, address, roce_v1| StationConfig {
        roce_v1,
        ..config(mac, &[address, &address.replace("10.0.0.", "fd00::").replace("/24", "/64")])
    };
    let mut wire = Wire::assigned([
        v1(MACS[0], "10.0.0.1/24", true),
        v1(MACS[1], "10.0.0.2/24", true),
        v1(MACS[2], "10.0.0.3/24", false),
    ]);
    let frame = FrameFields::new(RoceVersion::V1, 0, 0x1_2345);
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        wire.arrived.clear();
        wire.send_with(0, src, dst, frame); // resolution
        wire.send_with(0, src, dst, frame);
        let net = NetHeader {
            src: ip(src),
            dst: ip(dst),
            src_port: 0,
            traffic_class: 0xB9,
            hop_limit: 3,
            ident: Ident::Known { id: 0, dont_fragment: true },
            frame,
        };
        assert_eq!(wire.arrived, vec![(1, net, b"payload of a packet".to_vec()); 2]);
    }
    let before = wire.counters(2).other_protocol;
    wire.arrived.clear();
    for _ in 0..2 {
        wire.send_with(0, "10.0.0.1", "10.0.0.3", frame);
    }
    assert_eq!((wire.arrived.len(), wire.counters(2).other_protocol - before), (0, 2));
    // Another next header, then addresses of two families.
    let whole = wire.seen.iter().find(|frame| frame[12..14] == [0x89, 0x15]).unwrap().clone();
    for (at, value) in [(20, 17), (32, 0)] {
        let mut wrong = whole.clone();
        wrong[at] = value;
        assert_eq!(Frame::parse(&wrong), Err(FrameError::Ip), "byte {at}");
    }
    assert_eq!(Frame::parse(&whole[..50]), Err(FrameError::Truncated));
}

/// A SEND from 10.0.0.1 to 10.0.0.2 with zlib's ICRC over 64 ones, header and packet. Masked fields
/// (traffic class, flow label, hop limit, congestion bits) are ones.
#[test]
fn a_frame_of_roce_v1_byte_for_byte() {
    let whole: Vec<u8> = include_str!("tests/roce_v1.hex")
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let config =
        StationConfig { replies: false, roce_v1: true, ..config(MACS[1], &["10.0.0.2/24"]) };
    let mut station = Station::new(config, Instant::ZERO);
    let Received { net, bytes } = station.handle_frame(Instant::ZERO, &whole, false).unwrap();
    assert_eq!((net.src, net.dst), (ip("10.0.0.1"), ip("10.0.0.2")));
    assert_eq!((net.traffic_class, net.hop_limit, net.frame.flow_label()), (0x20, 64, 0x1_2345));
    assert_eq!(verify_icrc(&net, bytes), Some(IcrcMatch::Exact));
    let ethernet = Ethernet { dst: MACS[1], src: MACS[0], vlan: None };
    assert_eq!(ethernet.roce(&net, bytes), whole);
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
        id: 3,
        flow_label: 0,
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
        message[2..4].copy_from_slice(&sum);
        let mut frame = Ethernet { dst: MACS[0], src: MACS[2], vlan: None }
            .roce_headers(&net("192.0.2.254", "10.0.0.1"), message.len() - 8);
        frame.truncate(34);
        frame[23] = 1;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum);
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

#[test]
fn options_are_skipped_and_fragments_counted() {
    let now = Instant::ZERO;
    let mut station = Station::new(
        StationConfig { replies: false, ..config(MACS[0], &["10.0.0.1/24", "fd00::1/64"]) },
        now,
    );
    let sender = Ethernet { dst: MACS[0], src: MACS[1], vlan: None };
    let checked = |mut frame: Vec<u8>| {
        let end = 14 + usize::from(frame[14] & 15) * 4;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..end]);
        frame[24..26].copy_from_slice(&sum);
        frame
    };
    let plain = sender.roce(&net("10.0.0.2", "10.0.0.1"), &[7; 40]);
    let mut options = plain.clone();
    options[14] = 0x46;
    options[17] += 4;
    options.splice(34..34, [1, 1, 1, 0]);
    let options = checked(options);
    // hop-by-hop and destination options
    let plain6 = sender.roce(&net("fd00::2", "fd00::1"), &[7; 40]);
    let mut extended = plain6.clone();
    extended[20] = 0;
    extended[19] += 24;
    extended.splice(54..54, [60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12].into_iter().chain([0; 12]));
    for frame in [&plain, &options, &plain6, &extended] {
        let received = station.handle_frame(now, frame, false).unwrap();
        assert_eq!((received.bytes, received.net.src_port), (&[7; 40][..], 0xC001));
    }
    let mut fragment = plain.clone();
    fragment[20] = 0x20;
    let mut last = plain.clone();
    last[21] = 9;
    let mut fragment6 = plain6.clone();
    fragment6[20] = 44;
    for frame in [checked(fragment), checked(last), fragment6] {
        assert!(station.handle_frame(now, &frame, false).is_none());
    }
    assert_eq!(station.counters().fragments, 3);
    let mut endless = plain6.clone();
    endless[20] = 60;
    endless[19] = 40 + 80;
    endless.truncate(54);
    endless.extend([60, 0, 0, 0, 0, 0, 0, 0].repeat(15));
    station.handle_frame(now, &endless, false);
    let mut wrong_sum = plain.clone();
    wrong_sum[24] ^= 1;
    station.handle_frame(now, &wrong_sum, false);
    assert_eq!(station.counters().bad_ip, 2);
    let mut long_udp = plain.clone();
    long_udp[38..40].copy_from_slice(&[1, 0]);
    station.handle_frame(now, &long_udp, false);
    let mut mapped = plain6.clone();
    mapped[22..38].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2]);
    station.handle_frame(now, &mapped, false);
    assert_eq!(station.counters().bad_udp, 2);
    for length in 0..plain.len() {
        assert!(station.handle_frame(now, &plain[..length], false).is_none());
    }
    assert_eq!(station.counters().truncated, plain.len() as u64);
}

#[test]
fn a_stack_of_vlan_tags_is_counted() {
    let now = Instant::ZERO;
    let mut station = Station::new(config(MACS[0], &["10.0.0.1/24"]), now);
    let start = [MACS[0].octets(), MACS[1].octets()].concat();
    for tags in [
        &[0x81, 0, 0, 5, 0x81, 0, 0, 6, 8, 0][..], // two
        &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 6, 8, 0],  // a provider's and a customer's
        &[0x91, 0, 0, 5, 8, 0],                    // of old switches
        &[0x81, 0, 0],                             // half of one
        &[0x81, 0, 0, 5, 8],                       // one of nothing
    ] {
        assert!(station.handle_frame(now, &[&start[..], tags].concat(), false).is_none());
    }
    assert_eq!(station.counters().vlan_stack, 5);
}

/// Frames of rxe decode and encode to the same bytes, with the right ICRC.
#[test]
fn captured_frames_are_read_and_built_again() {
    let mut count = [0, 0];
    for (path, bytes) in captured() {
        let bytes = &bytes[..];
        let frame = Frame::parse(bytes).unwrap();
        let Packet::Ip(packet) = frame.packet else { continue };
        if packet.protocol != 17 || packet.payload[2..4] != 4791_u16.to_be_bytes() {
            continue;
        }
        let config = StationConfig {
            mac: frame.dst,
            vlan: None,
            addresses: vec![Prefix { address: packet.dst, length: 24 }],
            gateways: Vec::new(),
            replies: false,
            roce_v1: false,
            dhcp: None,
            mbps: 10_000,
        };
        let mut station = Station::new(config, Instant::ZERO);
        if frame.dst.0 & 1 == 1 {
            station = Station::new(
                StationConfig { mac: MACS[0], ..station.config().clone() },
                Instant::ZERO,
            );
        }
        let Received { net, bytes: payload } =
            station.handle_frame(Instant::ZERO, bytes, false).unwrap();
        assert_eq!(verify_icrc(&net, payload), Some(IcrcMatch::Exact), "{path:?}");
        let ethernet = Ethernet { dst: frame.dst, src: frame.src, vlan: None };
        assert_eq!(ethernet.roce(&net, payload), bytes, "{path:?}");
        count[usize::from(net.src.is_ipv6())] += 1;
    }
    assert!(count[0] > 50 && count[1] > 5, "{count:?} of IPv4 and IPv6");
}

proptest! {
    #[test]
    fn damaged_frames_do_no_harm(
        v6: bool,
        tagged: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut: prop::sample::Index,
    ) {
        let vlan = tagged.then_some(Vlan { id: 5, priority: 1 });
        let mut station = Station::new(
            StationConfig {
                vlan,
                replies: false,
                ..config(MACS[0], &["10.0.0.1/24", "fd00::1/64"])
            },
            Instant::ZERO,
        );
        let (src, dst) = if v6 { ("fd00::2", "fd00::1") } else { ("10.0.0.2", "10.0.0.1") };
        let sender = Ethernet { dst: MACS[0], src: MACS[1], vlan };
        let whole = sender.roce(&net(src, dst), &payload);
        let received = station.handle_frame(Instant::ZERO, &whole, false);
        prop_assert_eq!(received.map(|received| received.bytes), Some(&payload[..]));
        let mut frame = whole.clone();
        for (at, value) in damage {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame.truncate(cut.index(frame.len() + 1));
        if let Some(received) = station.handle_frame(Instant::ZERO, &frame, false) {
            prop_assert!(received.bytes.len() <= frame.len());
        }
    }
}
