use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce_transport::{
    addr::{ROCE_UDP_PORT, RoceVersion},
    wire::{FrameFields, Ident, NEXT_HEADER_IBA, NetHeader},
};

use super::{
    captured::{Captured, NoPacket, skip, transport, u16_at},
    erf,
    file::{Frame, LinkKind},
    icrc::Icrc,
    infiniband,
    network::Network,
};
use crate::writer::ETHERTYPE_ROCE_V1;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const UDP: u8 = 17;

pub(super) fn packet(frame: &Frame<'_>) -> Result<Captured, NoPacket> {
    let missing = frame.length.saturating_sub(frame.bytes.len());
    let (link, bytes) = match frame.link {
        LinkKind::Erf => erf::frame(frame.bytes)?,
        link => (link, frame.bytes),
    };
    let (mut kind, mut bytes) = match link {
        LinkKind::Ethernet => (u16_at(bytes, 12)?, skip(bytes, 14)?),
        LinkKind::Cooked => (u16_at(bytes, 14)?, skip(bytes, 16)?),
        LinkKind::Cooked2 => (u16_at(bytes, 0)?, skip(bytes, 20)?),
        LinkKind::Loopback => (0, skip(bytes, 4)?),
        LinkKind::Ip => (0, bytes),
        LinkKind::InfiniBand => return infiniband::infiniband(bytes, missing),
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
