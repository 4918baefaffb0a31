use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pnet_datalink::MacAddr;
use roce_transport::{
    addr::RoceVersion,
    wire::{GRH_LEN, Ident, NetHeader, grh},
};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet,
        Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
    },
};

use super::frame::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, TAG_8021Q, Vlan, header_len,
};

/// Shortest frame without frame check sequence (IEEE 802.3).
const SHORTEST: usize = 60;
const UDP_LEN: usize = 8;

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
    pub(super) flow_label: u32,
    /// DF is always set.
    pub(super) id: u16,
}

impl Ip {
    pub(super) const fn new(src: IpAddr, dst: IpAddr, hop_limit: u8) -> Self {
        Self { src, dst, traffic_class: 0, hop_limit, flow_label: 0, id: 0 }
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
        let sum =
            if v4 { checksum(&[&message]) } else { icmpv6_checksum(ip.src, ip.dst, &message) };
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
        let (src, dst) = (IpAddr::from(src), IpAddr::from(dst));
        let ip = Ip::new(src, dst, 64);
        let (mut frame, start) = self.ip(ip, IpProtocol::Udp, UDP_LEN + payload.len());
        let mut udp = UdpPacket::new_unchecked(&mut frame[start..]);
        udp.set_src_port(src_port);
        udp.set_dst_port(dst_port);
        udp.set_len((UDP_LEN + payload.len()) as u16);
        udp.payload_mut().copy_from_slice(payload);
        udp.fill_checksum(&src.into(), &dst.into());
        padded(frame)
    }

    pub(super) fn roce(&self, net: &NetHeader, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.roce_headers(net, payload.len());
        frame.extend_from_slice(payload);
        padded(frame)
    }

    pub(super) fn roce_headers(&self, net: &NetHeader, payload: usize) -> Vec<u8> {
        let id = match net.ident {
            Ident::Known { id, .. } | Ident::Likely(id) => id,
        };
        let &NetHeader { src, dst, src_port, traffic_class, hop_limit, ref frame, .. } = net;
        match frame.version() {
            RoceVersion::V1 => {
                let mut headers = Vec::with_capacity(header_len(true) + GRH_LEN + payload);
                self.put(&mut headers, ETHERTYPE_ROCE_V1);
                headers.extend(grh(net, payload));
                headers
            }
            RoceVersion::V2 => {
                let flow_label = frame.flow_label();
                let ip = Ip { src, dst, traffic_class, hop_limit, flow_label, id };
                self.udp_headers(ip, src_port, payload)
            }
        }
    }

    /// The UDP checksum is zero, as from network adapters and rxe.
    fn udp_headers(&self, ip: Ip, src_port: u16, payload: usize) -> Vec<u8> {
        let (mut frame, start) = self.ip(ip, IpProtocol::Udp, UDP_LEN);
        let length = UDP_LEN + payload;
        let ip_start = header_len(self.vlan.is_some());
        match ip.src {
            IpAddr::V4(_) => {
                let mut header = Ipv4Packet::new_unchecked(&mut frame[ip_start..]);
                header.set_total_len((20 + length) as u16);
                header.fill_checksum();
            }
            IpAddr::V6(_) => {
                Ipv6Packet::new_unchecked(&mut frame[ip_start..]).set_payload_len(length as u16);
            }
        }
        let mut udp = UdpPacket::new_unchecked(&mut frame[start..]);
        udp.set_src_port(src_port);
        udp.set_dst_port(roce_transport::addr::ROCE_UDP_PORT);
        udp.set_len(length as u16);
        udp.set_checksum(0);
        frame
    }

    /// Headers with room for the payload, and its offset.
    fn ip(&self, ip: Ip, protocol: IpProtocol, payload: usize) -> (Vec<u8>, usize) {
        let v4 = ip.src.is_ipv4();
        let mut frame = Vec::with_capacity((header_len(true) + 40 + payload).max(SHORTEST));
        self.put(&mut frame, if v4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 });
        let at = frame.len();
        let start = at + if v4 { 20 } else { 40 };
        frame.resize(start + payload, 0);
        match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Packet::new_unchecked(&mut frame[at..]);
                header.set_version(4);
                header.set_header_len(20);
                header.set_dscp(ip.traffic_class >> 2);
                header.set_ecn(ip.traffic_class & 3);
                header.set_total_len((20 + payload) as u16);
                header.set_ident(ip.id);
                header.clear_flags();
                header.set_dont_frag(true);
                header.set_frag_offset(0);
                header.set_hop_limit(ip.hop_limit);
                header.set_next_header(protocol);
                header.set_src_addr(src);
                header.set_dst_addr(dst);
                header.fill_checksum();
            }
            (src, dst) => {
                let mut header = Ipv6Packet::new_unchecked(&mut frame[at..]);
                header.set_version(6);
                header.set_traffic_class(ip.traffic_class);
                header.set_flow_label(ip.flow_label);
                header.set_payload_len(payload as u16);
                header.set_next_header(protocol);
                header.set_hop_limit(ip.hop_limit);
                header.set_src_addr(v6(src));
                header.set_dst_addr(v6(dst));
            }
        }
        (frame, start)
    }
}

/// Callers pass source and destination of one family.
fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// RFC 1071 checksum; 0 if the parts contain the right checksum.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    roce_transport::wire::checksum(&bytes)
}

/// Likewise for ICMPv6 (RFC 4443, section 2.3).
pub(super) fn icmpv6_checksum(src: IpAddr, dst: IpAddr, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    checksum(&[&v6(src).octets(), &v6(dst).octets(), &length, &[0, 58], message])
}

fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}
