//! Packets of the kernel's rxe, parsed and encoded byte by byte.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::IpAddr,
    path::{Path, PathBuf},
};

use pcap_file::pcap::PcapReader;
use roce_transport::{
    addr::{Gid, Qpn, ROCE_UDP_PORT},
    cm::{CmMad, IpHeader, Message, PortSpace},
    wire::{FrameFields, IcrcMatch, Ident, NetHeader, PACKET_MAX, Packet, icrc, verify_icrc},
};

/// Counts ensure that no frame is skipped.
struct Capture {
    name: &'static str,
    roce_v4: usize,
    roce_v6: usize,
    arp: usize,
    icmpv6: usize,
}

const fn v4(name: &'static str, roce_v4: usize, icmpv6: usize) -> Capture {
    Capture { name, roce_v4, roce_v6: 0, arp: 0, icmpv6 }
}

const CAPTURES: [Capture; 15] = [
    v4("cm_reject_no_listener", 2, 0),
    v4("cm_rping", 41, 0),
    v4("cm_ucmatose", 26, 0),
    v4("cm_udaddy_sidr", 6, 1),
    v4("rc_cmp_swap", 10, 0),
    v4("rc_fetch_add", 10, 1),
    v4("rc_read_mtu1024", 30, 0),
    Capture { arp: 2, ..v4("rc_send_4096_mtu1024", 50, 2) },
    Capture { roce_v6: 12, ..v4("rc_send_ipv6", 0, 2) },
    v4("rc_send_odd_sizes", 50, 1),
    v4("rc_write_mtu4096", 36, 0),
    v4("srq_send", 64, 1),
    v4("uc_send", 24, 2),
    v4("ud_multicast", 3, 1),
    v4("ud_send", 10, 2),
];

#[test]
fn every_packet_parses_and_is_written_back_as_it_came() {
    for_every_packet(|place, _, bytes| {
        let packet = Packet::parse(bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
        let mut out = [0xAA; PACKET_MAX];
        let length = packet.encode(&mut out);
        assert_eq!(out[..length], *bytes, "{place}: {}", packet.headers.bth().opcode);
    });
}

#[test]
fn every_cm_message_parses_and_is_written_back_as_it_came() {
    let mut kinds = BTreeMap::new();
    for_every_packet(|place, net, bytes| {
        let packet = Packet::parse(bytes).unwrap();
        if packet.headers.bth().dest_qp != Qpn::GSI {
            return;
        }
        let mad = CmMad::parse(packet.payload).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(mad.encode(), packet.payload, "{place}: {mad:?}");
        let name = format!("{:?}", mad.message);
        *kinds.entry(name.split(['(', ' ']).next().unwrap().to_owned()).or_insert(0) += 1;
        let header = match &mad.message {
            Message::Req(req) => req.private_data.0.first_chunk().copied(),
            Message::SidrReq(req) => req.private_data.0.first_chunk().copied(),
            _ => None,
        };
        if let Some(header) = header {
            let header = IpHeader::parse(&header).unwrap();
            assert_eq!((header.src, header.dst), (net.src, net.dst), "{place}");
        }
        if let Message::Req(req) = &mad.message {
            assert_eq!(PortSpace::of(req.service_id).unwrap().0, PortSpace::Tcp);
            assert_eq!(Gid::from(net.src), req.primary.local_gid);
            assert_eq!((req.max_cm_retries, req.transport), (15, 0), "{place}");
        }
    });
    for kind in ["Req", "Rep", "Rtu", "Dreq", "Drep", "Rej", "SidrReq", "SidrRep"] {
        assert!(
            kinds.get(kind).is_some_and(|&count| count > 0),
            "no {kind} in the captures: {kinds:?}"
        );
    }
}

#[test]
fn every_icrc_is_right_with_the_identification_known() {
    for_every_packet(|place, net, bytes| {
        assert_eq!(verify_icrc(net, bytes), Some(IcrcMatch::Exact), "{place}");
        let body = &bytes[..bytes.len() - 4];
        assert_eq!(icrc(net, body).to_le_bytes(), bytes[body.len()..], "{place}");
    });
}

#[test]
fn the_identification_is_recovered_where_it_is_unknown() {
    for_every_packet(|place, net, bytes| {
        let unknown = NetHeader { ident: Ident::Likely(0), ..*net };
        let expected = match net.ident {
            Ident::Known { id, dont_fragment }
                if net.src.is_ipv4() && (id, dont_fragment) != (0, true) =>
            {
                IcrcMatch::Solved { id, dont_fragment }
            }
            _ => IcrcMatch::Exact,
        };
        assert_eq!(verify_icrc(&unknown, bytes), Some(expected), "{place}");
    });
}

#[test]
fn the_captures_hold_every_operation_that_rxe_sends_in_them() {
    let mut opcodes = BTreeMap::<u8, usize>::new();
    for_every_packet(|_, _, bytes| *opcodes.entry(bytes[0]).or_default() += 1);
    let expected = [
        (0x00, 20),
        (0x01, 40),
        (0x02, 20),
        (0x04, 58),
        (0x06, 6),
        (0x07, 18),
        (0x08, 6),
        (0x0A, 3),
        (0x0C, 8),
        (0x0D, 5),
        (0x0E, 15),
        (0x0F, 5),
        (0x10, 3),
        (0x11, 87),
        (0x12, 10),
        (0x13, 5),
        (0x14, 5),
        (0x20, 8),
        (0x21, 8),
        (0x22, 8),
        (0x64, 29),
        (0x65, 7),
    ];
    assert_eq!(opcodes, BTreeMap::from(expected));
}

#[test]
fn every_file_is_in_the_table() {
    let files = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    files.sort();
    assert_eq!(files, CAPTURES.map(|capture| capture.name));
}

/// `each` takes file and frame number, network header and UDP payload.
fn for_every_packet(mut each: impl FnMut(&str, &NetHeader, &[u8])) {
    for capture in &CAPTURES {
        let (mut roce_v4, mut roce_v6, mut arp, mut icmpv6) = (0, 0, 0, 0);
        for (index, frame) in
            frames(&directory().join(capture.name).with_extension("pcap")).iter().enumerate()
        {
            let place = format!("{}, frame {}", capture.name, index + 1);
            match Frame::of(frame)
                .unwrap_or_else(|| panic!("{place}: neither RoCEv2 nor what a host says besides"))
            {
                Frame::Roce(net, bytes) => {
                    *if net.src.is_ipv4() { &mut roce_v4 } else { &mut roce_v6 } += 1;
                    each(&place, &net, bytes);
                }
                Frame::Arp => arp += 1,
                Frame::Icmpv6 => icmpv6 += 1,
            }
        }
        let expected = (capture.roce_v4, capture.roce_v6, capture.arp, capture.icmpv6);
        assert_eq!((roce_v4, roce_v6, arp, icmpv6), expected, "{}", capture.name);
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(
            packet.orig_len as usize,
            packet.data.len(),
            "a frame of {} was cut off",
            path.display()
        );
        frames.push(packet.data.into_owned());
    }
    frames
}

enum Frame<'a> {
    Roce(NetHeader, &'a [u8]),
    Arp,
    Icmpv6,
}

impl<'a> Frame<'a> {
    fn of(frame: &'a [u8]) -> Option<Self> {
        const ARP: u16 = 0x0806;
        const IPV4: u16 = 0x0800;
        const IPV6: u16 = 0x86DD;
        const UDP: u8 = 17;
        const ICMPV6: u8 = 58;
        let ip = &frame[14..];
        match (be16(&frame[12..]), ip) {
            (ARP, _) => Some(Self::Arp),
            // 20-byte header: no options
            (IPV4, [0x45, ..]) if ip[9] == UDP => {
                let address =
                    |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
                let ident = Ident::Known { id: be16(&ip[4..]), dont_fragment: ip[6] & 0x40 != 0 };
                let length = usize::from(be16(&ip[2..]));
                let net = NetHeader {
                    src: address(12),
                    dst: address(16),
                    src_port: be16(&ip[20..]),
                    traffic_class: ip[1],
                    hop_limit: ip[8],
                    ident,
                    frame: FrameFields::default(),
                };
                Self::roce(net, &ip[20..length])
            }
            (IPV6, _) if ip[6] == UDP => {
                let address =
                    |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
                let net = NetHeader {
                    src: address(8),
                    dst: address(24),
                    src_port: be16(&ip[40..]),
                    traffic_class: ip[0] << 4 | ip[1] >> 4,
                    hop_limit: ip[7],
                    // IPv6 has none; the value must not matter
                    ident: Ident::Known { id: 0x5A5A, dont_fragment: false },
                    frame: FrameFields::default(),
                };
                Self::roce(net, &ip[40..40 + usize::from(be16(&ip[4..]))])
            }
            (IPV6, _) if ip[6] == ICMPV6 => Some(Self::Icmpv6),
            _ => None,
        }
    }

    /// UDP length: short Ethernet frames are padded.
    fn roce(net: NetHeader, udp: &'a [u8]) -> Option<Self> {
        let payload = &udp[8..usize::from(be16(&udp[4..]))];
        (be16(&udp[2..]) == ROCE_UDP_PORT).then_some(Self::Roce(net, payload))
    }
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}
