//! Network headers, and the 40-byte area before a datagram in place of a GRH.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::addr::{Gid, ROCE_UDP_PORT, RoceVersion};

/// IPv4 identification and "don't fragment" bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ident {
    /// Both are known.
    Known {
        /// Identification.
        id: u16,
        /// "Don't fragment" bit.
        dont_fragment: bool,
    },
    /// Unknown; likely this identification with "don't fragment".
    Likely(u16),
}

impl Ident {
    /// For the next datagram in a run.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Known { id, dont_fragment } => {
                Self::Known { id: id.wrapping_add(1), dont_fragment }
            }
            Self::Likely(id) => Self::Likely(id.wrapping_add(1)),
        }
    }

    pub(super) const fn likely(self) -> (u16, bool) {
        match self {
            Self::Known { id, dont_fragment } => (id, dont_fragment),
            Self::Likely(id) => (id, true),
        }
    }
}

/// Network headers of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetHeader {
    /// Sender's address.
    pub src: IpAddr,
    /// Receiver's address.
    pub dst: IpAddr,
    /// UDP source port.
    pub src_port: u16,
    /// IPv4 TOS or IPv6 traffic class, with ECN bits.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 identification.
    pub ident: Ident,
    /// Fields of frames.
    pub frame: FrameFields,
}

/// Fields for links that build frames; otherwise the kernel sets them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, derive_more::Debug)]
#[debug("FrameFields({:?}, {}, {:#x})", self.version(), self.service_level(), self.flow_label())]
pub struct FrameFields(u32);

impl FrameFields {
    const V1: u32 = 1 << 31;

    /// The VLAN priority is the low 3 bits of the service level.
    #[must_use]
    pub const fn new(version: RoceVersion, service_level: u8, flow_label: u32) -> Self {
        let version = match version {
            RoceVersion::V1 => Self::V1,
            RoceVersion::V2 => 0,
        };
        Self(version | (service_level as u32 & 0xF) << 20 | flow_label & 0xF_FFFF)
    }

    /// RoCE version.
    #[must_use]
    pub const fn version(self) -> RoceVersion {
        if self.0 & Self::V1 == 0 { RoceVersion::V2 } else { RoceVersion::V1 }
    }

    /// Service level, 4 bits.
    #[must_use]
    pub const fn service_level(self) -> u8 {
        (self.0 >> 20) as u8 & 0xF
    }

    /// Flow label, 20 bits.
    #[must_use]
    pub const fn flow_label(self) -> u32 {
        self.0 & 0xF_FFFF
    }
}

impl NetHeader {
    /// True for "congestion experienced" (RFC 3168), which RoCE v1 lacks.
    #[must_use]
    pub const fn is_congested(&self) -> bool {
        self.traffic_class & 3 == 3 && matches!(self.frame.version(), RoceVersion::V2)
    }
}

pub(super) const NEXT_HEADER_UDP: u8 = 17;
/// "Next header" of a GRH before a BTH.
pub const NEXT_HEADER_IBA: u8 = 27;

/// Bytes of the area.
pub const GRH_LEN: usize = 40;

/// Area for `udp_payload` bytes, BTH to ICRC: the GRH (RoCE v1), the IPv6 header, or 20 zero bytes
/// and the IPv4 header.
#[must_use]
pub fn grh(net: &NetHeader, udp_payload: usize) -> [u8; GRH_LEN] {
    let mut area = [0; GRH_LEN];
    let udp_length = (udp_payload + 8) as u16;
    let mut ipv6 = |src: Gid, dst: Gid, length: u16, next_header| {
        let traffic_class = u32::from(net.traffic_class) << 20;
        let first = 6 << 28 | traffic_class | net.frame.flow_label();
        area[..4].copy_from_slice(&first.to_be_bytes());
        area[4..6].copy_from_slice(&length.to_be_bytes());
        area[6..8].copy_from_slice(&[next_header, net.hop_limit]);
        area[8..24].copy_from_slice(&src.0);
        area[24..].copy_from_slice(&dst.0);
    };
    match (net.src, net.dst) {
        (src, dst) if net.frame.version() == RoceVersion::V1 => {
            ipv6(src.into(), dst.into(), udp_payload as u16, NEXT_HEADER_IBA);
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = &mut area[20..];
            let (id, dont_fragment) = net.ident.likely();
            header[..2].copy_from_slice(&[0x45, net.traffic_class]);
            // wraps only beyond IPv4's length
            header[2..4].copy_from_slice(&udp_length.wrapping_add(20).to_be_bytes());
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6] = u8::from(dont_fragment) << 6;
            header[8..10].copy_from_slice(&[net.hop_limit, 17]);
            header[12..16].copy_from_slice(&src.octets());
            header[16..].copy_from_slice(&dst.octets());
            let sum = checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        // addresses never mix families
        (src, dst) => ipv6(src.into(), dst.into(), udp_length, NEXT_HEADER_UDP),
    }
    area
}

/// The parsed area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grh {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, or multicast group.
    pub dst: IpAddr,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// RoCE version.
    pub version: RoceVersion,
    /// IPv6 flow label, else 0.
    pub flow_label: u32,
    /// Received TTL or hop limit.
    pub hop_limit: u8,
}

impl Grh {
    /// Parses the area. Adapters differ in the bytes before an IPv4 header, which needs a correct
    /// checksum and no options.
    #[must_use]
    pub fn parse(area: &[u8; GRH_LEN]) -> Option<Self> {
        let v4 = &area[20..];
        if v4[0] == 0x45 && checksum(v4) == 0 {
            let address = |at: usize| IpAddr::from([v4[at], v4[at + 1], v4[at + 2], v4[at + 3]]);
            return Some(Self {
                src: address(12),
                dst: address(16),
                traffic_class: v4[1],
                version: RoceVersion::V2,
                flow_label: 0,
                hop_limit: v4[8],
            });
        }
        if area[0] >> 4 != 6 {
            return None;
        }
        let first = u32::from_be_bytes([area[0], area[1], area[2], area[3]]);
        // RoCE v1 maps IPv4 addresses; IPv6 keeps mapped ones
        let version = if area[6] == NEXT_HEADER_IBA { RoceVersion::V1 } else { RoceVersion::V2 };
        let address = |at: usize| -> Option<IpAddr> {
            let address: IpAddr = <[u8; 16]>::try_from(area.get(at..at + 16)?).ok()?.into();
            Some(if version == RoceVersion::V1 { address.to_canonical() } else { address })
        };
        Some(Self {
            src: address(8)?,
            dst: address(24)?,
            traffic_class: (first >> 20) as u8,
            version,
            flow_label: first & 0xF_FFFF,
            hop_limit: area[7],
        })
    }
}

/// Appends the headers of `udp_payload` bytes, BTH to ICRC: the GRH (RoCE v1), or IP and UDP. The
/// UDP checksum is zero, as from network adapters and rxe.
pub fn put_network_headers(to: &mut Vec<u8>, net: &NetHeader, udp_payload: usize) {
    let area = grh(net, udp_payload);
    match net.frame.version() {
        RoceVersion::V1 => to.extend(area),
        RoceVersion::V2 => {
            to.extend_from_slice(&area[if net.src.is_ipv4() { 20 } else { 0 }..]);
            for field in [net.src_port, ROCE_UDP_PORT, (udp_payload + 8) as u16, 0] {
                to.extend(field.to_be_bytes());
            }
        }
    }
}

/// Internet checksum (RFC 1071); 0 if the bytes contain the right one. An odd last byte is the
/// upper half of a word.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    let (words, last) = bytes.as_chunks();
    let last = last.first().map_or(0, |last| u32::from(*last) << 8);
    let words = words.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let mut sum = words.sum::<u32>() + last;
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(src: IpAddr, dst: IpAddr, traffic_class: u8, hop_limit: u8) -> NetHeader {
        let ident = Ident::Known { id: 0x1234, dont_fragment: true };
        let frame = FrameFields::default();
        NetHeader { src, dst, src_port: 49152, traffic_class, hop_limit, ident, frame }
    }

    #[test]
    fn ipv4_header_is_valid() {
        let net = net([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 2, 64);
        let area = grh(&net, 24);
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(area[20..28], [0x45, 2, 0, 52, 0x12, 0x34, 0x40, 0]);
        assert_eq!(checksum(&area[20..]), 0);
    }

    #[test]
    fn an_area_can_be_read_back() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd77::1", "ff0e::2"), ("::1", "::1")] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            assert_eq!(
                Grh::parse(&grh(&net(src, dst, 0xB9, 3), 24)),
                Some(Grh {
                    src,
                    dst,
                    traffic_class: 0xB9,
                    flow_label: 0,
                    hop_limit: 3,
                    version: RoceVersion::V2
                })
            );
        }
    }

    #[test]
    fn only_a_right_checksum_makes_an_ipv4_header() {
        let net = net([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0, 64);
        let mut area = grh(&net, 24);
        area[..20].fill(0x66);
        assert_eq!(Grh::parse(&area).map(|grh| grh.src), Some(net.src));
        area[30] ^= 1;
        assert!(
            Grh::parse(&area).is_some_and(|grh| grh.src.is_ipv6()),
            "version 6, as far as one can tell"
        );
        area[0] = 0;
        assert_eq!(Grh::parse(&area), None);
    }
}
