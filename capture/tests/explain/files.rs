use std::{net::IpAddr, time::Duration};

use roce_capture::{
    CaptureWriter,
    explain::{CaptureError, Explained, Explanation, FindingKind, Network, WrongIcrcs},
};
use roce_transport::{
    addr::RoceVersion,
    wire::{Ident, NEXT_HEADER_IBA},
    work::SendWr,
};

use super::forms::{self, COOKED, COOKED2, ERF, ETHERNET, LOOPBACK, RAW, Seen};
use crate::common::{Options, Pair, Side};

/// A WRITE of three packets and its acknowledgement.
fn write(ipv6: bool) -> Seen {
    let mut pair = if ipv6 { Pair::over_ipv6() } else { Pair::new() }.recorded();
    let (a, _) = pair.connect(Options::default());
    let (near, far) = (pair.a.buffer(3000), pair.b.buffer(3000));
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    std::mem::take(&mut pair.seen[Side::A as usize])
}

fn check(explained: &Explained, name: &str) {
    assert_eq!(explained.packets.len(), 4, "{name}");
    assert_eq!(explained.findings, [], "{name}");
    let whys: Vec<_> = explained.packets.iter().map(|packet| packet.why).collect();
    assert!(
        matches!(
            whys[..],
            [
                Explanation::Joined,
                Explanation::Next,
                Explanation::Next,
                Explanation::Acknowledges { packets: 3, after: Some(_), .. }
            ]
        ),
        "{name}: {whys:?}"
    );
    assert_eq!(explained.connections.len(), 1, "{name}");
}

#[test]
fn every_kind_of_link() {
    for ipv6 in [false, true] {
        let seen = write(ipv6);
        let kind: [u8; 2] = if ipv6 { [0x86, 0xDD] } else { [0x08, 0x00] };
        let family = [if ipv6 { 10 } else { 2 }, 0, 0, 0];
        let mut cooked = vec![0; 14];
        cooked.extend(kind);
        let mut cooked2 = kind.to_vec();
        cooked2.extend([0; 18]);
        let mut plain = vec![0; 12];
        plain.extend(kind);
        let mut vlan = vec![0; 12];
        vlan.extend([0x88, 0xA8, 0, 5, 0x81, 0, 0, 7]);
        vlan.extend(kind);
        let record = |kind| [vec![0; 8], vec![kind], vec![0; 7]].concat();
        for (name, link, before) in [
            ("raw", RAW, vec![]),
            ("Ethernet", ETHERNET, plain.clone()),
            ("VLAN in VLAN", ETHERNET, vlan),
            ("cooked", COOKED, cooked),
            ("cooked, version 2", COOKED2, cooked2),
            ("loopback", LOOPBACK, family.to_vec()),
            ("ERF, Ethernet", ERF, [record(2), vec![0, 0], plain].concat()),
            ("ERF, IP", ERF, record(if ipv6 { 23 } else { 22 })),
        ] {
            let frames: Vec<_> = seen
                .iter()
                .map(|(at, net, bytes)| {
                    let frame = [before.clone(), forms::ip(net, bytes)].concat();
                    let length = frame.len();
                    (*at, frame, length)
                })
                .collect();
            check(&Explained::of_file(&forms::pcap(link, &frames)).unwrap(), name);
        }
    }
}

#[test]
fn version_1_has_a_grh_and_no_udp() {
    let frames: Vec<_> = write(true)
        .iter()
        .map(|(at, net, bytes)| {
            let mut packet = forms::ip(net, bytes);
            packet.drain(40..48);
            packet[4..6].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
            packet[6] = NEXT_HEADER_IBA;
            let frame = [vec![0; 12], vec![0x89, 0x15], packet].concat();
            let length = frame.len();
            (*at, frame, length)
        })
        .collect();
    let explained = Explained::of_file(&forms::pcap(ETHERNET, &frames)).unwrap();
    check(&explained, "version 1");
    let is_v1 =
        |net: Network| matches!(net, Network::Roce(net) if net.frame.version() == RoceVersion::V1);
    assert!(explained.packets.iter().all(|packet| is_v1(packet.net)));
}

#[test]
fn frames_that_were_cut() {
    let frames: Vec<_> = write(false)
        .iter()
        .map(|(at, net, bytes)| {
            let mut frame = forms::ip(net, bytes);
            let length = frame.len();
            frame.truncate(60);
            (*at, frame, length)
        })
        .collect();
    let explained = Explained::of_file(&forms::pcap(RAW, &frames)).unwrap();
    check(&explained, "cut");
    let cut: Vec<_> = explained.packets.iter().map(|packet| packet.truncated).collect();
    assert_eq!(cut, [true, true, true, false], "the acknowledgement has 48 bytes");
    let lengths: Vec<_> = explained.packets.iter().map(|packet| packet.payload).collect();
    assert_eq!(lengths, [1024, 1024, 952, 0]);
}

#[test]
fn pcapng_as_roce_writes_it() {
    let seen = write(false);
    let mut capture = CaptureWriter::new(Vec::new()).unwrap();
    for (at, net, bytes) in &seen {
        capture.write(Duration::from_nanos(at.as_nanos()), net, bytes, Some("why".into())).unwrap();
    }
    let explained = Explained::of_file(&capture.into_inner()).unwrap();
    check(&explained, "pcapng");
    let times: Vec<_> =
        explained.packets.iter().map(|packet| packet.at.as_nanos() as u64).collect();
    assert_eq!(times, seen.iter().map(|(at, ..)| at.as_nanos()).collect::<Vec<_>>());
}

#[test]
fn a_file_that_ends_early_and_files_that_are_none() {
    let file = forms::of_datagrams(&write(false));
    let explained = Explained::of_file(&file[..file.len() - 10]).unwrap();
    assert!(!explained.complete && explained.packets.len() == 3);
    assert_eq!(Explained::of_file(b""), Err(CaptureError::Format));
    assert_eq!(Explained::of_file(b"no capture at all, but some text"), Err(CaptureError::Format));
    let other = forms::pcap(147, &[]);
    assert_eq!(Explained::of_file(&other), Err(CaptureError::LinkType(147)));
}

#[test]
fn what_is_not_roce_is_counted() {
    let mut seen = write(false);
    seen.truncate(1);
    let (at, net, bytes) = seen.remove(0);
    let mut other_port = forms::ip(&net, &bytes);
    other_port[22..24].copy_from_slice(&53_u16.to_be_bytes());
    let mut fragment = forms::ip(&net, &bytes);
    fragment[6] = 0x20;
    let frame = |bytes: &[u8]| (at, bytes.to_vec(), bytes.len());
    let file = forms::pcap(RAW, &[frame(&other_port), frame(&fragment), frame(&[0x45])]);
    let explained = Explained::of_file(&file).unwrap();
    assert_eq!((explained.packets.len(), explained.other_frames, explained.fragments), (0, 2, 1));
}

fn wrong_icrcs(explained: &Explained) -> Vec<(usize, usize, WrongIcrcs)> {
    let wrong = explained.findings.iter().filter_map(|finding| match finding.kind {
        FindingKind::WrongIcrcs { packets, fault, .. } => Some((finding.frame, packets, fault)),
        _ => None,
    });
    wrong.collect()
}

/// An anonymizer changes addresses but not the ICRC. Earlier damage is still found.
#[test]
fn rewritten_addresses_are_said_once() {
    for ipv6 in [false, true] {
        let [one, other]: [IpAddr; 2] = match ipv6 {
            false => ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap()),
            true => ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse().unwrap()),
        };
        let mut seen = write(ipv6);
        let first = seen[0].1.src;
        for (_, net, _) in &mut seen {
            (net.src, net.dst) = if net.src == first { (one, other) } else { (other, one) };
        }
        let explained = Explained::of_file(&forms::of_datagrams(&seen)).unwrap();
        // a single acknowledgement does not show its fault
        let expected = [(1, 3, WrongIcrcs::Rewritten), (4, 1, WrongIcrcs::Unknown)];
        assert_eq!(wrong_icrcs(&explained), expected);
        assert_eq!(explained.findings.len(), 2, "{:?}", explained.findings);
        assert!(explained.packets.iter().all(|packet| packet.wrong_icrc));
        assert!(matches!(explained.packets[3].why, Explanation::Acknowledges { packets: 3, .. }));

        seen[1].2[20] ^= 1;
        let explained = Explained::of_file(&forms::of_datagrams(&seen)).unwrap();
        assert_eq!(wrong_icrcs(&explained)[0], (1, 2, WrongIcrcs::Rewritten));
        let whys = explained.packets.iter().map(|packet| packet.why == Explanation::Damaged);
        assert_eq!(whys.collect::<Vec<_>>(), [false, true, false, false]);
    }
}

/// FPGAs with zero or useless ICRCs; their peer's are right.
#[test]
fn a_sender_without_icrcs_is_said_once() {
    for (wrong, fault) in [(0, WrongIcrcs::Zero), (1, WrongIcrcs::Unknown)] {
        let mut seen = write(false);
        seen.insert(3, seen[2].clone()); // retransmitted
        for (n, (_, _, bytes)) in seen[..4].iter_mut().enumerate() {
            let icrc = bytes.len() - 4;
            bytes[icrc..].fill(wrong * (n as u8 + 1));
        }
        let explained = Explained::of_file(&forms::of_datagrams(&seen)).unwrap();
        assert_eq!(wrong_icrcs(&explained), [(1, 4, fault)]);
        let wrong: Vec<_> = explained.packets.iter().map(|packet| packet.wrong_icrc).collect();
        assert_eq!(wrong, [true, true, true, true, false]);
        assert!(explained.packets.iter().all(|packet| packet.why != Explanation::Damaged));
    }
}

#[test]
fn damage_is_found_and_believed_in_nothing() {
    let mut seen = write(false);
    seen[1].2[20] ^= 1;
    let explained = Explained::of_file(&forms::of_datagrams(&seen)).unwrap();
    assert_eq!(explained.packets[1].why, Explanation::Damaged);
    let kinds: Vec<_> = explained.findings.iter().map(|finding| &finding.kind).collect();
    assert_eq!(kinds, [&FindingKind::WrongIcrc, &FindingKind::PsnJump(1)]);
    let known = Ident::Known { id: 0, dont_fragment: true };
    assert!(matches!(seen[0].1.ident, Ident::Known { .. }), "{known:?}");
}
