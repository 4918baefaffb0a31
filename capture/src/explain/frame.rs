use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce_transport::{
    addr::{ROCE_UDP_PORT, RoceVersion},
    wire::{FrameFields, ICRC_LEN, Ident, NEXT_HEADER_IBA, NetHeader, PACKET_MAX},
};

use super::{
    file::{Frame, LinkKind},
    icrc::Icrc,
    network::Network,
};
use crate::writer::ETHERTYPE_ROCE_V1;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const UDP: u8 = 17;
/// Bytes of an ERF record's header; extension headers have 8.
const ERF_HEADER: usize = 16;
/// Another header follows.
const MORE: u8 = 0x80;
const LRH: usize = 8;
const GRH: usize = 40;
/// The LRH's next header: transport, or GRH first.
const LOCAL: u8 = 2;
const GLOBAL: u8 = 3;

pub(super) struct Captured {
    pub(super) net: Network,
    /// BTH to ICRC; uncaptured bytes are zero.
    pub(super) bytes: Vec<u8>,
    pub(super) truncated: bool,
    pub(super) icrc: Option<Icrc>,
}

/// Frame without a whole packet.
pub(super) enum NoPacket {
    Other,
    /// IP fragment.
    Fragment,
}

pub(super) fn packet(frame: &Frame<'_>) -> Result<Captured, NoPacket> {
    let missing = frame.length.saturating_sub(frame.bytes.len());
    let (link, bytes) = match frame.link {
        LinkKind::Erf => erf(frame.bytes)?,
        link => (link, frame.bytes),
    };
    let (mut kind, mut bytes) = match link {
        LinkKind::Ethernet => (u16_at(bytes, 12)?, skip(bytes, 14)?),
        LinkKind::Cooked => (u16_at(bytes, 14)?, skip(bytes, 16)?),
        LinkKind::Cooked2 => (u16_at(bytes, 0)?, skip(bytes, 20)?),
        LinkKind::Loopback => (0, skip(bytes, 4)?),
        LinkKind::Ip => (0, bytes),
        LinkKind::InfiniBand => return infiniband(bytes, missing),
        LinkKind::Erf => return Err(NoPacket::Other), // never nested
    };
    // stacked VLAN tags
    for _ in 0..4 {
        if matches!(kind, 0x8100 | 0x88A8 | 0x9100) {
            (kind, bytes) = (u16_at(bytes, 2)?, skip(bytes, 4)?);
        }
    }
    if kind == 0 {
        kind = match bytes.first().ok_or(NoPacket::Other)? >> 4 {
            4 => IPV4,
            6 => IPV6,
            _ => return Err(NoPacket::Other),
        };
    }
    match kind {
        IPV4 => ipv4(bytes, missing),
        IPV6 => ipv6(bytes, missing, UDP),
        ETHERTYPE_ROCE_V1 => ipv6(bytes, missing, NEXT_HEADER_IBA),
        _ => Err(NoPacket::Other),
    }
}

fn ipv4(bytes: &[u8], missing: usize) -> Result<Captured, NoPacket> {
    let header = bytes.first_chunk::<20>().ok_or(NoPacket::Other)?;
    if header[9] != UDP {
        return Err(NoPacket::Other);
    }
    let fragment = u16_at(bytes, 6)?;
    if fragment & 0x1FFF != 0 {
        return Err(NoPacket::Other); // no UDP header
    }
    let length = usize::from(header[0] & 0xF) * 4;
    let udp = skip(bytes, length)?;
    let total = usize::from(u16_at(bytes, 2)?).saturating_sub(length);
    let address =
        |at: usize| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let net = NetHeader {
        src: IpAddr::V4(address(12)),
        dst: IpAddr::V4(address(16)),
        src_port: u16_at(udp, 0)?,
        traffic_class: header[1],
        hop_limit: header[8],
        ident: Ident::Known { id: u16_at(bytes, 4)?, dont_fragment: fragment & 0x4000 != 0 },
        frame: FrameFields::default(),
    };
    let captured = over_udp(net, udp, total, missing);
    if captured.is_ok() && fragment & 0x2000 != 0 { Err(NoPacket::Fragment) } else { captured }
}

fn ipv6(bytes: &[u8], missing: usize, next: u8) -> Result<Captured, NoPacket> {
    let header = bytes.first_chunk::<40>().ok_or(NoPacket::Other)?;
    if header[6] != next {
        return Err(NoPacket::Other);
    }
    // RoCE v1 maps IPv4 addresses
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|byte| header[at + byte]);
        Ipv6Addr::from(octets).to_canonical()
    };
    let version = if next == NEXT_HEADER_IBA { RoceVersion::V1 } else { RoceVersion::V2 };
    let flow_label = u32::from(u16_at(bytes, 2)?) | u32::from(header[1] & 0xF) << 16;
    let body = skip(bytes, 40)?;
    let total = usize::from(u16_at(bytes, 4)?);
    let mut net = NetHeader {
        src: address(8),
        dst: address(24),
        src_port: 0,
        traffic_class: header[0] << 4 | header[1] >> 4,
        hop_limit: header[7],
        ident: Ident::Known { id: 0, dont_fragment: true },
        frame: FrameFields::new(version, 0, flow_label),
    };
    if next == NEXT_HEADER_IBA {
        // v1's CRC covers a missing header; adapters' substitute is unknown
        return transport(Network::Roce(net), body, total, missing);
    }
    net.src_port = u16_at(body, 0)?;
    over_udp(net, body, total, missing)
}

fn over_udp(
    net: NetHeader,
    udp: &[u8],
    total: usize,
    missing: usize,
) -> Result<Captured, NoPacket> {
    if u16_at(udp, 2)? != ROCE_UDP_PORT {
        return Err(NoPacket::Other);
    }
    // with segmentation offload the length is 0 or the whole run's
    let length = match usize::from(u16_at(udp, 4)?) {
        0 => total,
        length => length,
    };
    let mut captured =
        transport(Network::Roce(net), skip(udp, 8)?, length.saturating_sub(8), missing)?;
    if !captured.truncated {
        captured.icrc = Some(Icrc::of_roce(&net, &captured.bytes));
    }
    Ok(captured)
}

fn infiniband(frame: &[u8], missing: usize) -> Result<Captured, NoPacket> {
    let lrh = frame.first_chunk::<LRH>().ok_or(NoPacket::Other)?;
    let before = match lrh[1] & 3 {
        LOCAL => LRH,
        GLOBAL if frame.get(LRH + 6) == Some(&NEXT_HEADER_IBA) => LRH + GRH,
        _ => return Err(NoPacket::Other),
    };
    // in 4-byte words, from here to the ICRC
    let length = usize::from(u16_at(frame, 4)? & 0x7FF) * 4;
    let net = Network::InfiniBand { src: u16_at(frame, 6)?, dst: u16_at(frame, 2)? };
    let body = skip(frame, before)?;
    let mut captured = transport(net, body, length.saturating_sub(before), missing)?;
    if !captured.truncated {
        let is_right = is_icrc_right(&frame[..before], &captured.bytes);
        captured.icrc = Some(Icrc::of(is_right, &captured.bytes));
    }
    Ok(captured)
}

/// The ICRC covers what switches keep or, with a GRH, what routers keep. `bytes`: BTH to ICRC.
fn is_icrc_right(before: &[u8], bytes: &[u8]) -> bool {
    let Some((body, icrc)) = bytes.split_last_chunk::<ICRC_LEN>() else { return false };
    let mut covered = [before, body].concat();
    let mut mask = |at: usize, ones: u8| {
        if let Some(byte) = covered.get_mut(at) {
            *byte |= ones;
        }
    };
    if before.len() == LRH {
        mask(0, 0xF0); // virtual lane
    } else {
        (0..LRH).for_each(|at| mask(at, 0xFF));
        mask(LRH, 0x0F); // traffic class and flow label
        (LRH + 1..LRH + 4).for_each(|at| mask(at, 0xFF));
        mask(LRH + 7, 0xFF); // hop limit
    }
    mask(before.len() + 4, 0xFF); // FECN and BECN
    crc32fast::hash(&covered) == u32::from_le_bytes(*icrc)
}

fn erf(record: &[u8]) -> Result<(LinkKind, &[u8]), NoPacket> {
    let header = record.first_chunk::<ERF_HEADER>().ok_or(NoPacket::Other)?;
    let mut frame = skip(record, ERF_HEADER)?;
    let mut more = header[8] & MORE != 0;
    while more {
        more = frame.first().is_some_and(|first| first & MORE != 0);
        frame = skip(frame, 8)?;
    }
    match header[8] & !MORE {
        // offset and pad before the frame
        2 | 11 | 16 | 20 => Ok((LinkKind::Ethernet, skip(frame, 2)?)),
        21 => Ok((LinkKind::InfiniBand, frame)),
        22 | 23 => Ok((LinkKind::Ip, frame)),
        _ => Err(NoPacket::Other),
    }
}

/// `length`: of the packet, by its headers.
fn transport(
    net: Network,
    bytes: &[u8],
    length: usize,
    missing: usize,
) -> Result<Captured, NoPacket> {
    let captured = bytes.get(..length).unwrap_or(bytes);
    let truncated = captured.len() < length && missing > 0;
    let mut bytes = captured.to_vec();
    if truncated {
        if bytes.len() < 12 {
            return Err(NoPacket::Other);
        }
        bytes.resize(length.min(PACKET_MAX), 0);
    }
    Ok(Captured { net, bytes, truncated, icrc: None })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, NoPacket> {
    let two = bytes.get(at..at + 2).ok_or(NoPacket::Other)?;
    Ok(u16::from_be_bytes([two[0], two[1]]))
}

fn skip(bytes: &[u8], count: usize) -> Result<&[u8], NoPacket> {
    bytes.get(count..).ok_or(NoPacket::Other)
}
