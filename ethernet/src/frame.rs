use std::net::IpAddr;

use pnet_datalink::MacAddr;
use roce_transport::{
    addr::ROCE_UDP_PORT,
    wire::{Ident, NEXT_HEADER_IBA},
};
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv6Packet};

use super::counters::{BAD_IP, FRAGMENTS, Handled, TRUNCATED, VLAN_STACK, refuse_if};

const EXTENSIONS: usize = 8;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86DD;
const ETHERTYPE_MAC_CONTROL: u16 = 0x8808;
pub(super) const ETHERTYPE_ROCE_V1: u16 = 0x8915;
pub(super) const UDP: u8 = 17;
/// 802.1Q, 802.1ad, older switches.
pub(super) const TAG_8021Q: u16 = 0x8100;
pub(super) const TAGS: [u16; 3] = [TAG_8021Q, 0x88A8, 0x9100];

/// A received Ethernet II frame with at most one VLAN tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// VLAN ID, 0 for a priority tag. `None`: untagged.
    pub vlan: Option<u16>,
    /// Payload.
    pub packet: Packet<'a>,
}

/// Payload of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// ARP message.
    Arp(&'a [u8]),
    /// IP packet.
    Ip(IpPacket<'a>),
    /// RoCE v1: a GRH instead of the IPv6 header, IPv4 addresses mapped.
    RoceV1(IpPacket<'a>),
    /// MAC control message: a pause.
    MacControl(&'a [u8]),
    /// Other ethertype.
    Other(u16),
}

/// Fields of an IP packet, and the payload behind all IP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpPacket<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address of the same family.
    pub dst: IpAddr,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label; 0 for IPv4.
    pub flow_label: u32,
    /// IPv4 identification and DF; 0 and true for IPv6.
    pub ident: Ident,
    /// Payload protocol.
    pub protocol: u8,
    /// Payload without Ethernet padding.
    pub payload: &'a [u8],
}

impl IpPacket<'_> {
    pub(super) fn is_roce(&self) -> bool {
        self.protocol == UDP && self.payload.get(2..4) == Some(&ROCE_UDP_PORT.to_be_bytes())
    }
}

/// A VLAN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vlan {
    /// ID, 1 to 4094.
    pub id: u16,
    /// Priority of sent frames, 0 to 7.
    pub priority: u8,
}

impl<'a> Frame<'a> {
    /// Parses a frame from the destination on, without frame check sequence.
    ///
    /// # Errors
    /// The counter of unreadable frames.
    pub fn parse(bytes: &'a [u8]) -> Handled<Self> {
        let (dst, rest) = bytes.split_first_chunk::<6>().ok_or(TRUNCATED)?;
        let (src, rest) = rest.split_first_chunk::<6>().ok_or(TRUNCATED)?;
        let (kind, rest) = word(rest).ok_or(TRUNCATED)?;
        let (vlan, kind, payload) = if TAGS.contains(&kind) {
            let (control, rest) = word(rest).ok_or(VLAN_STACK)?;
            let (inner, rest) = word(rest).ok_or(VLAN_STACK)?;
            refuse_if(kind != TAG_8021Q || TAGS.contains(&inner), VLAN_STACK)?;
            (Some(control & 0xFFF), inner, rest)
        } else {
            (None, kind, rest)
        };
        let packet = match kind {
            ETHERTYPE_ARP => Packet::Arp(payload),
            ETHERTYPE_IPV4 => Packet::Ip(ipv4(payload)?),
            ETHERTYPE_IPV6 => Packet::Ip(ipv6(payload)?),
            ETHERTYPE_ROCE_V1 => Packet::RoceV1(roce_v1(payload)?),
            ETHERTYPE_MAC_CONTROL => Packet::MacControl(payload),
            other => Packet::Other(other),
        };
        Ok(Self { dst: MacAddr::from(*dst), src: MacAddr::from(*src), vlan, packet })
    }
}

pub(super) fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), rest))
}

pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn ipv4(bytes: &[u8]) -> Handled<IpPacket<'_>> {
    refuse_if(bytes.len() < 20, TRUNCATED)?;
    let packet = Ipv4Packet::new_unchecked(bytes);
    let (header, total) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
    refuse_if(packet.version() != 4 || header < 20 || total < header, BAD_IP)?;
    let whole = bytes.get(..total).ok_or(TRUNCATED)?;
    let packet = Ipv4Packet::new_unchecked(whole);
    refuse_if(!packet.verify_checksum(), BAD_IP)?;
    refuse_if(packet.more_frags() || packet.frag_offset() != 0, FRAGMENTS)?;
    Ok(IpPacket {
        src: packet.src_addr().into(),
        dst: packet.dst_addr().into(),
        traffic_class: packet.dscp() << 2 | packet.ecn(),
        hop_limit: packet.hop_limit(),
        flow_label: 0,
        ident: Ident::Known { id: packet.ident(), dont_fragment: packet.dont_frag() },
        protocol: packet.next_header().into(),
        payload: &whole[header..],
    })
}

fn ipv6(bytes: &[u8]) -> Handled<IpPacket<'_>> {
    let packet = ipv6_header(bytes)?;
    let (protocol, payload) = skip_extensions(packet.protocol.into(), packet.payload)?;
    Ok(IpPacket { protocol: protocol.into(), payload, ..packet })
}

fn roce_v1(bytes: &[u8]) -> Handled<IpPacket<'_>> {
    let packet = ipv6_header(bytes)?;
    let (src, dst) = (packet.src.to_canonical(), packet.dst.to_canonical());
    refuse_if(packet.protocol != NEXT_HEADER_IBA || src.is_ipv4() != dst.is_ipv4(), BAD_IP)?;
    Ok(IpPacket { src, dst, ..packet })
}

/// Extension headers stay in the payload.
fn ipv6_header(bytes: &[u8]) -> Handled<IpPacket<'_>> {
    refuse_if(bytes.len() < 40, TRUNCATED)?;
    let packet = Ipv6Packet::new_unchecked(bytes);
    refuse_if(packet.version() != 6, BAD_IP)?;
    let end = 40 + usize::from(packet.payload_len());
    let payload = bytes.get(40..end).ok_or(TRUNCATED)?;
    Ok(IpPacket {
        src: packet.src_addr().into(),
        dst: packet.dst_addr().into(),
        traffic_class: packet.traffic_class(),
        hop_limit: packet.hop_limit(),
        flow_label: packet.flow_label(),
        ident: Ident::Known { id: 0, dont_fragment: true },
        protocol: packet.next_header().into(),
        payload,
    })
}

/// Skips extension headers (RFC 8200, section 4).
fn skip_extensions(mut next: IpProtocol, mut payload: &[u8]) -> Handled<(IpProtocol, &[u8])> {
    for _ in 0..EXTENSIONS {
        match next {
            IpProtocol::HopByHop | IpProtocol::Ipv6Route | IpProtocol::Ipv6Opts => {
                let [following, length] = *payload.first_chunk().ok_or(BAD_IP)?;
                next = following.into();
                payload = payload.get(8 + usize::from(length) * 8..).ok_or(BAD_IP)?;
            }
            IpProtocol::Ipv6Frag => return Err(FRAGMENTS),
            other => return Ok((other, payload)),
        }
    }
    Err(BAD_IP)
}
