use roce_transport::wire::PACKET_MAX;

use super::{icrc::Icrc, network::Network};

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
    /// Truncated headers.
    Cut,
}

/// `length`: of the packet, by its headers.
pub(super) fn transport(
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
            return Err(NoPacket::Cut);
        }
        bytes.resize(length.min(PACKET_MAX), 0);
    }
    Ok(Captured { net, bytes, truncated, icrc: None })
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, NoPacket> {
    let two = bytes.get(at..at + 2).ok_or(NoPacket::Other)?;
    Ok(u16::from_be_bytes([two[0], two[1]]))
}

pub(super) fn skip(bytes: &[u8], count: usize) -> Result<&[u8], NoPacket> {
    bytes.get(count..).ok_or(NoPacket::Other)
}
