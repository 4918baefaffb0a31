//! Target: datagrams for a capture.
//!
//! Each begins with a byte: IPv4 below 128, else IPv6; if even, it is the length of a comment. Then
//! addresses, fields, time, comment, length and payload.

use std::{
    fs::File,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use pcap_file::pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption};
use roce_provider::link::Capture;
use roce_transport::{
    addr::ROCE_UDP_PORT,
    wire::{FrameFields, Ident, NetHeader},
};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::input::Input;

const STEPS: usize = 100;
/// UDP payload over IPv4 and IPv6.
const LONGEST: [usize; 2] = [65_507, 65_527];

struct Written {
    at: Duration,
    net: NetHeader,
    payload: Vec<u8>,
    comment: Option<String>,
}

/// Panics if a reader misreads the written packets; returns their number.
pub fn capture(bytes: &[u8]) -> usize {
    let memory = memfd_create("capture", MemfdFlags::CLOEXEC).unwrap();
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let mut capture = Capture::create(path).unwrap();
    let mut input = Input::new(bytes);
    let mut written = Vec::new();
    input.play(STEPS, |input| {
        let one = datagram(input);
        let result = capture.write(one.at, &one.net, &one.payload, one.comment.clone());
        assert_eq!(
            result.is_ok(),
            one.payload.len() <= LONGEST[usize::from(one.net.src.is_ipv6())]
        );
        if result.is_ok() {
            written.push(one);
        }
    });
    drop(capture);
    check(memory, &written);
    written.len()
}

fn datagram(input: &mut Input<'_>) -> Written {
    let step = input.byte();
    let is_ipv4 = step < 128;
    let mut address = || -> IpAddr {
        if is_ipv4 { input.array::<4>().into() } else { input.array::<16>().into() }
    };
    let (src, dst) = (address(), address());
    let id = u16::from_be_bytes(input.array());
    let ident = match input.byte() % 3 {
        0 => Ident::Likely(id),
        flag => Ident::Known { id, dont_fragment: flag == 1 },
    };
    let src_port = u16::from_be_bytes(input.array());
    let [traffic_class, hop_limit] = input.array();
    let net = NetHeader {
        src,
        dst,
        src_port,
        traffic_class,
        hop_limit,
        ident,
        frame: FrameFields::default(),
    };
    // any 64-bit number of nanoseconds
    let at = Duration::from_nanos(u64::from_be_bytes(input.array()));
    let comment = step.is_multiple_of(2).then(|| {
        let text = input.bytes(usize::from(step));
        // sometimes longer than a capture allows
        String::from_utf8_lossy(text).repeat(if step == 126 { 1000 } else { 1 })
    });
    let length = usize::from(u16::from_be_bytes(input.array()));
    let mut payload = input.bytes(length & 0xFF).to_vec();
    payload.resize(length, 0xA5);
    Written { at, net, payload, comment }
}

fn check(file: OwnedFd, written: &[Written]) {
    let mut reader = PcapNgReader::new(File::from(file)).unwrap();
    let mut read = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            read.push(packet.into_owned());
        }
    }
    assert_eq!(read.len(), written.len());
    for (read, written) in read.iter().zip(written) {
        assert_eq!((read.interface_id, read.original_len as usize), (0, read.data.len()));
        assert_eq!(read.timestamp, written.at);
        let comment = read.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(comment) => Some(&comment[..]),
            _ => None,
        });
        assert_eq!(comment.is_some(), written.comment.is_some());
        let whole = written.comment.as_deref().unwrap_or_default();
        let comment = comment.unwrap_or_default();
        assert!(whole.starts_with(comment) && (comment.len() > 60_000 || comment == whole));
        check_packet(&read.data, &written.net, &written.payload);
    }
}

fn check_packet(packet: &[u8], net: &NetHeader, payload: &[u8]) {
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let sum = |bytes: &[u8]| -> u16 {
        let words = bytes.chunks(2).map(|pair| {
            u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default())
        });
        let sum: u32 = words.sum();
        let sum = (sum >> 16) + (sum & 0xFFFF);
        ((sum >> 16) + sum) as u16
    };
    let (src, dst): (IpAddr, IpAddr);
    let udp = if packet[0] >> 4 == 4 {
        let at = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap();
        (src, dst) = (at(12).into(), at(16).into());
        assert_eq!((packet[0], usize::from(word(2)), packet[9]), (0x45, packet.len(), 17));
        assert_eq!((packet[1], packet[8]), (net.traffic_class, net.hop_limit));
        assert_eq!(sum(&packet[..20]), 0xFFFF, "the header's checksum");
        let (id, dont_fragment) = match net.ident {
            Ident::Likely(id) => (id, true),
            Ident::Known { id, dont_fragment } => (id, dont_fragment),
        };
        assert_eq!((word(4), word(6)), (id, u16::from(dont_fragment) << 14));
        20
    } else {
        let at = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap();
        (src, dst) = (at(8).into(), at(24).into());
        assert_eq!(word(0), 6 << 12 | u16::from(net.traffic_class) << 4);
        assert_eq!((usize::from(word(4)), packet[6]), (packet.len() - 40, 17));
        assert_eq!(packet[7], net.hop_limit);
        let length = word(4).to_be_bytes();
        let pseudo = [&packet[8..40], &length, &[0, 17], &packet[40..]].concat();
        assert_eq!(sum(&pseudo), 0xFFFF, "the datagram's checksum");
        40
    };
    assert_eq!((src, dst), (net.src, net.dst));
    assert_eq!((word(udp), word(udp + 2)), (net.src_port, ROCE_UDP_PORT));
    assert_eq!(usize::from(word(udp + 4)), packet.len() - udp);
    assert_eq!(&packet[udp + 8..], payload);
}
