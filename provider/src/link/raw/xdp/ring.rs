//! Rings of an AF_XDP socket, shared with the kernel.

#![allow(unsafe_code, reason = "the kernel writes to the rings' memory")]

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::{AtomicU32, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};
use rustix::net::xdp::{XdpDesc, XdpRingFlags, XdpRingOffset};

use crate::link::ensure;

/// Plain numbers, valid with any bytes.
pub(super) trait Entry: Copy {}

/// Offset of a chunk.
impl Entry for u64 {}
impl Entry for XdpDesc {}

pub(super) struct Ring<T> {
    memory: MmapRaw,
    offsets: XdpRingOffset,
    size: u32,
    /// Own next index, and the other side's as last seen.
    own: u32,
    other: u32,
    entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// `place`: the ring's offset in the socket's file.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        debug_assert!(size.is_power_of_two());
        let length = offsets.desc as usize + size as usize * size_of::<T>();
        let memory =
            MmapOptions::new().offset(place).len(length).populate().map_raw(socket.as_raw_fd())?;
        let indices = [Some(offsets.producer), Some(offsets.consumer), offsets.flags];
        let is_valid = indices.iter().flatten().all(|&at| at % 4 == 0 && at + 4 <= length as u64)
            && offsets.desc.is_multiple_of(align_of::<T>() as u64);
        ensure(is_valid, io::ErrorKind::InvalidData)?;
        Ok(Self { memory, offsets, size, own: 0, other: 0, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: `new` has checked for four aligned bytes in the mapping. Both sides access them
        // only atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().add(offset as usize).cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = self.offsets.desc as usize + (index & (self.size - 1)) as usize * size_of::<T>();
        // the mapping covers the last entry
        self.memory.as_mut_ptr().wrapping_add(at).cast()
    }
}

pub(super) struct Producer<T>(pub(super) Ring<T>);

impl<T: Entry> Producer<T> {
    /// Free entries; reads the kernel's index only if fewer than `wanted` are known.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let ring = &mut self.0;
        if ring.size - ring.own.wrapping_sub(ring.other) < wanted {
            ring.other = ring.consumer().load(Ordering::Acquire);
        }
        ring.size.saturating_sub(ring.own.wrapping_sub(ring.other))
    }

    /// Returns `false` if full. The kernel sees the entry after [`submit`](Self::submit).
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        let ring = &mut self.0;
        // SAFETY: The entry is aligned within the mapping. The kernel is past the previous entry,
        // and reads none before `submit`.
        unsafe { ring.entry(ring.own).write(entry) };
        ring.own = ring.own.wrapping_add(1);
        true
    }

    pub(super) fn submit(&self) {
        self.0.producer().store(self.0.own, Ordering::Release);
    }

    /// The kernel has entries to take.
    pub(super) fn is_pending(&self) -> bool {
        self.0.consumer().load(Ordering::Acquire) != self.0.own
    }

    /// The kernel needs a call to proceed.
    pub(super) fn needs_wakeup(&self) -> bool {
        let ring = &self.0;
        let flags = ring.offsets.flags.map_or(0, |at| ring.word(at).load(Ordering::Relaxed));
        XdpRingFlags::from_bits_retain(flags).contains(XdpRingFlags::XDP_RING_NEED_WAKEUP)
    }
}

pub(super) struct Consumer<T>(pub(super) Ring<T>);

impl<T: Entry> Consumer<T> {
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.own == ring.other {
            ring.other = ring.producer().load(Ordering::Acquire);
            if ring.own == ring.other {
                return None;
            }
        }
        // SAFETY: The entry is aligned within the mapping, and any bytes are valid. The kernel
        // wrote it before its index, and leaves it alone until ours passes.
        let entry = unsafe { ring.entry(ring.own).read() };
        ring.own = ring.own.wrapping_add(1);
        ring.consumer().store(ring.own, Ordering::Release);
        Some(entry)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.own != self.0.producer().load(Ordering::Acquire)
    }
}
