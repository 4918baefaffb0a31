use roce_transport::wire::{ICRC_LEN, NEXT_HEADER_IBA};

use super::{
    captured::{Captured, NoPacket, skip, transport, u16_at},
    icrc::Icrc,
    network::Network,
};

const LRH: usize = 8;
const GRH: usize = 40;
/// The LRH's next header: transport, or GRH first.
const LOCAL: u8 = 2;
const GLOBAL: u8 = 3;

pub(super) fn infiniband(frame: &[u8], missing: usize) -> Result<Captured, NoPacket> {
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
