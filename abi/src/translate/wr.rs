use roce_provider::{
    GpuMemory, copy_from_program,
    transport::{
        mem::{LKey, Memory, RKey},
        wire::Immediate,
        work::{Data, Remote, SendFlags, Sge, SgeList},
    },
};

use crate::prelude::*;

/// Same numbers in C, without checksums (`IBV_SEND_IP_CSUM`).
pub(crate) fn flags(flags: c_uint) -> Result<SendFlags> {
    SendFlags::from_bits(flags & !IBV_SEND_INLINE).ok_or(Errno::of(Rule::SendFlags))
}

pub(crate) const fn immediate(network_order: u32) -> Option<Immediate> {
    Some(Immediate(network_order.to_ne_bytes()))
}

pub(crate) const fn remote(address: u64, rkey: u32) -> Remote {
    Remote { address, rkey: RKey(rkey) }
}

const fn sge(c: ibv_sge) -> Sge {
    Sge { lkey: LKey(c.lkey), address: c.addr, length: c.length }
}

/// May be unaligned.
pub(crate) unsafe fn elements<T: Copy>(
    first: *const T,
    count: usize,
) -> impl Iterator<Item = T> + Clone {
    (0..count).map(move |index| first.wrapping_add(index).read_unaligned())
}

pub(crate) unsafe fn list(
    first: *const ibv_sge,
    count: usize,
    limit: u32,
) -> Result<impl Iterator<Item = ibv_sge> + Clone> {
    if count > 0 && (count > limit as usize || first.is_null()) {
        return Err(Errno::of(Rule::TooManySges { count, limit }));
    }
    Ok(elements(first, count))
}

#[inline]
pub(crate) unsafe fn sges(first: *const ibv_sge, count: usize, limit: u32) -> Result<SgeList> {
    Ok(list(first, count, limit)?.map(sge).collect())
}

pub(crate) unsafe fn inline(
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
    limit: u32,
) -> Result<Data> {
    let length = pieces.clone().try_fold(0usize, |sum, (_, length)| sum.checked_add(length));
    if length.is_none_or(|length| length > limit as usize) {
        return Err(Errno::of(Rule::InlineTooLong { limit }));
    }
    let mut bytes = smallvec::SmallVec::<[u8; 64]>::new();
    for (start, length) in pieces.filter(|&(_, length)| length > 0) {
        let before = bytes.len();
        if let Some(memory) = GpuMemory::find_used(start as u64, length)? {
            bytes.resize(before + length, 0);
            memory.read_at(0, &mut bytes[before..])?;
            continue;
        }
        bytes.reserve(length);
        // SAFETY: There is room, and the copy initializes the bytes.
        copy_from_program(start, bytes.as_mut_ptr().add(before), length)?;
        bytes.set_len(before + length);
    }
    Ok(Data::Inline(bytes))
}
