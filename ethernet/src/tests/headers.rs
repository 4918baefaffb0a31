use proptest::prelude::*;
use roce_transport::wire::{IcrcMatch, verify_icrc};

use super::{captured::captured, *};

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
    let refused = |frame: &[u8]| {
        let mut counters = FrameCounters::default();
        *Frame::parse(frame).unwrap_err()(&mut counters) += 1;
        counters
    };
    for (at, value) in [(20, 17), (32, 0)] {
        let mut wrong = whole.clone();
        wrong[at] = value;
        assert_eq!(refused(&wrong).bad_ip, 1, "byte {at}");
    }
    assert_eq!(refused(&whole[..50]).truncated, 1);
}

/// A SEND from 10.0.0.1 to 10.0.0.2 with zlib's ICRC over 64 ones, header and packet. Masked fields
/// (traffic class, flow label, hop limit, congestion bits) are ones.
#[test]
fn a_frame_of_roce_v1_byte_for_byte() {
    let whole: Vec<u8> = include_str!("roce_v1.hex")
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
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
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
