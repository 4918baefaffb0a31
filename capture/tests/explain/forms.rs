use std::net::IpAddr;

use roce_transport::{
    time::Instant,
    wire::{Ident, NetHeader},
};

pub(crate) const ETHERNET: u32 = 1;
pub(crate) const RAW: u32 = 101;
pub(crate) const COOKED: u32 = 113;
pub(crate) const COOKED2: u32 = 276;
pub(crate) const ERF: u32 = 197;
pub(crate) const LOOPBACK: u32 = 0;

pub(crate) type Seen = Vec<(Instant, NetHeader, Vec<u8>)>;

pub(crate) fn ip(net: &NetHeader, payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend(net.src_port.to_be_bytes());
    udp.extend(4791_u16.to_be_bytes());
    udp.extend((payload.len() as u16 + 8).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    match (net.src, net.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let Ident::Known { id, dont_fragment } = net.ident else { panic!("{:?}", net.ident) };
            let mut bytes = vec![0x45, net.traffic_class];
            bytes.extend((20 + udp.len() as u16).to_be_bytes());
            bytes.extend(id.to_be_bytes());
            bytes.extend([u8::from(dont_fragment) << 6, 0, net.hop_limit, 17, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            [bytes, udp].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let class = net.traffic_class;
            let mut bytes = vec![0x60 | class >> 4, class << 4, 0, 0];
            bytes.extend((udp.len() as u16).to_be_bytes());
            bytes.extend([17, net.hop_limit]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            [bytes, udp].concat()
        }
        other => panic!("{other:?}"),
    }
}

/// Frames with time and length on the wire, in nanosecond pcap.
pub(crate) fn pcap(link: u32, frames: &[(Instant, Vec<u8>, usize)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_3C4D_u32, 0x0004_0002, 0, 0, 0xFFFF, link] {
        file.extend(word.to_le_bytes());
    }
    for (at, frame, length) in frames {
        let nanos = at.as_nanos();
        let (seconds, rest) = ((nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32);
        for word in [seconds, rest, frame.len() as u32, *length as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

pub(crate) fn of_datagrams(seen: &[(Instant, NetHeader, Vec<u8>)]) -> Vec<u8> {
    let frames: Vec<_> = seen
        .iter()
        .map(|(at, net, bytes)| {
            let frame = ip(net, bytes);
            let length = frame.len();
            (*at, frame, length)
        })
        .collect();
    pcap(RAW, &frames)
}
