use super::{
    captured::{NoPacket, skip},
    file::LinkKind,
};

/// Bytes of the record header; extension headers have 8.
const HEADER: usize = 16;
/// Another header follows.
const MORE: u8 = 0x80;

pub(super) fn frame(record: &[u8]) -> Result<(LinkKind, &[u8]), NoPacket> {
    let header = record.first_chunk::<HEADER>().ok_or(NoPacket::Other)?;
    let mut frame = skip(record, HEADER)?;
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
