use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pnet_datalink::MacAddr;
use roce_transport::{
    addr::{Gid, RoceVersion},
    wire::{GRH_LEN, NetHeader, checksum, put_network_headers},
};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet,
        Icmpv6Repr, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, UDP_HEADER_LEN, UdpPacket, UdpRepr,
    },
};

use super::frame::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, TAG_8021Q, Vlan,
};

/// Shortest frame without frame check sequence (IEEE 802.3).
const SHORTEST: usize = 60;
/// Ethernet header with a VLAN tag.
const ETHERNET: usize = 18;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ethernet {
    pub(super) dst: MacAddr,
    pub(super) src: MacAddr,
    pub(super) vlan: Option<Vlan>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ip {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl Ip {
    pub(super) const fn new(src: IpAddr, dst: IpAddr, hop_limit: u8) -> Self {
        Self { src, dst, traffic_class: 0, hop_limit }
    }
}

impl Ethernet {
    fn put(&self, to: &mut Vec<u8>, ethertype: u16) {
        to.extend(self.dst.octets());
        to.extend(self.src.octets());
        if let Some(Vlan { id, priority }) = self.vlan {
            to.extend(TAG_8021Q.to_be_bytes());
            to.extend((u16::from(priority) << 13 | id).to_be_bytes());
        }
        to.extend(ethertype.to_be_bytes());
    }

    pub(super) fn arp(
        &self,
        operation: ArpOperation,
        (sender_mac, sender): (MacAddr, Ipv4Addr),
        (target_mac, target): (MacAddr, Ipv4Addr),
    ) -> Vec<u8> {
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(sender_mac.octets()),
            source_protocol_addr: sender,
            target_hardware_addr: EthernetAddress(target_mac.octets()),
            target_protocol_addr: target,
        };
        let mut frame = Vec::with_capacity(SHORTEST);
        self.put(&mut frame, ETHERTYPE_ARP);
        let start = frame.len();
        frame.resize(start + repr.buffer_len(), 0);
        repr.emit(&mut ArpPacket::new_unchecked(&mut frame[start..]));
        padded(frame)
    }

    pub(super) fn icmpv4(&self, ip: Ip, message: &Icmpv4Repr<'_>) -> Vec<u8> {
        let (mut frame, start) = self.ip(ip, IpProtocol::Icmp, message.buffer_len());
        let mut packet = Icmpv4Packet::new_unchecked(&mut frame[start..]);
        message.emit(&mut packet, &ChecksumCapabilities::default());
        padded(frame)
    }

    pub(super) fn icmpv6(
        &self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        hop_limit: u8,
        message: &Icmpv6Repr<'_>,
    ) -> Vec<u8> {
        let ip = Ip::new(src.into(), dst.into(), hop_limit);
        let (mut frame, start) = self.ip(ip, IpProtocol::Icmpv6, message.buffer_len());
        let mut packet = Icmpv6Packet::new_unchecked(&mut frame[start..]);
        message.emit(&src, &dst, &mut packet, &ChecksumCapabilities::default());
        padded(frame)
    }

    /// An IGMP or MLD message behind the router alert option (RFC 2113, RFC 2711).
    pub(super) fn membership(&self, ip: Ip, mut message: Vec<u8>) -> Vec<u8> {
        let length = message.len();
        let v4 = ip.dst.is_ipv4();
        let sum = if v4 { checksum(&message) } else { icmpv6_checksum(ip.src, ip.dst, &message) };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let option: &[u8] = if v4 { &[0x94, 4, 0, 0] } else { &[58, 0, 5, 2, 0, 0, 1, 0] };
        let protocol = if v4 { IpProtocol::Igmp } else { IpProtocol::HopByHop };
        let (mut frame, start) = self.ip(ip, protocol, option.len() + length);
        frame[start..start + option.len()].copy_from_slice(option);
        frame[start + option.len()..].copy_from_slice(&message);
        if v4 {
            let mut header = Ipv4Packet::new_unchecked(&mut frame[start - 20..]);
            header.set_header_len(24);
            header.fill_checksum();
        }
        padded(frame)
    }

    pub(super) fn udp(
        &self,
        (src, src_port): (Ipv4Addr, u16),
        (dst, dst_port): (Ipv4Addr, u16),
        payload: &[u8],
    ) -> Vec<u8> {
        let repr = UdpRepr { src_port, dst_port };
        let ip = Ip::new(src.into(), dst.into(), 64);
        let length = repr.header_len() + payload.len();
        let (mut frame, start) = self.ip(ip, IpProtocol::Udp, length);
        repr.emit(
            &mut UdpPacket::new_unchecked(&mut frame[start..]),
            &src.into(),
            &dst.into(),
            payload.len(),
            |to| to.copy_from_slice(payload),
            &ChecksumCapabilities::default(),
        );
        padded(frame)
    }

    pub(super) fn roce(&self, net: &NetHeader, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.roce_headers(net, payload.len());
        frame.extend_from_slice(payload);
        padded(frame)
    }

    pub(super) fn roce_headers(&self, net: &NetHeader, payload: usize) -> Vec<u8> {
        let ethertype = match (net.frame.version(), net.src) {
            (RoceVersion::V1, _) => ETHERTYPE_ROCE_V1,
            (RoceVersion::V2, IpAddr::V4(_)) => ETHERTYPE_IPV4,
            (RoceVersion::V2, IpAddr::V6(_)) => ETHERTYPE_IPV6,
        };
        let mut headers = Vec::with_capacity(ETHERNET + GRH_LEN + UDP_HEADER_LEN);
        self.put(&mut headers, ethertype);
        put_network_headers(&mut headers, net, payload);
        headers
    }

    /// Headers with room for the payload, and its offset. Source and destination are of one family.
    fn ip(&self, ip: Ip, protocol: IpProtocol, payload: usize) -> (Vec<u8>, usize) {
        let repr = IpRepr::new(ip.src.into(), ip.dst.into(), protocol, payload, ip.hop_limit);
        let mut frame = Vec::with_capacity((ETHERNET + repr.buffer_len()).max(SHORTEST));
        self.put(&mut frame, if ip.src.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 });
        let at = frame.len();
        frame.resize(at + repr.buffer_len(), 0);
        repr.emit(&mut frame[at..], &ChecksumCapabilities::ignored());
        match ip.src {
            IpAddr::V4(_) => {
                let mut header = Ipv4Packet::new_unchecked(&mut frame[at..]);
                header.set_dscp(ip.traffic_class >> 2);
                header.set_ecn(ip.traffic_class & 3);
                header.fill_checksum();
            }
            IpAddr::V6(_) => {
                Ipv6Packet::new_unchecked(&mut frame[at..]).set_traffic_class(ip.traffic_class);
            }
        }
        (frame, at + repr.header_len())
    }
}

/// ICMPv6 [`checksum`] (RFC 4443, section 2.3).
pub(super) fn icmpv6_checksum(src: IpAddr, dst: IpAddr, message: &[u8]) -> u16 {
    let (src, dst) = (Gid::from(src).0, Gid::from(dst).0);
    let length = (message.len() as u32).to_be_bytes();
    checksum(&[&src[..], &dst, &length, &[0, 58], message].concat())
}

fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}
