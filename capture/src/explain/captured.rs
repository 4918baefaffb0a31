//! Content of a frame: a packet of the transport, or none.

use roce_transport::wire::PACKET_MAX;

use super::{icrc::Icrc, network::Network};

/// A packet as it was captured.
pub(super) struct Captured {
    pub(super) net: Network,
    /// From the BTH to the ICRC; zeros in place of what was not captured.
    pub(super) bytes: Vec<u8>,
    /// True if not all of it was captured.
    pub(super) truncated: bool,
    /// Its ICRC; `None` if that cannot be checked.
    pub(super) icrc: Option<Icrc>,
}

/// A frame that holds no packet, or not enough of it.
pub(super) enum NoPacket {
    /// Something else.
    Other,
    /// A fragment of an IP packet.
    Fragment,
    /// Not even its headers were captured.
    Cut,
}

/// `length`: of the packet, as its headers have it.
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
