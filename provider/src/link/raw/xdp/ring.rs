//! The rings of an AF_XDP socket: memory that it shares with the kernel. One side writes entries
//! and moves the producer's index on, the other reads them and moves the consumer's.

#![allow(unsafe_code, reason = "the kernel writes to the rings' memory")]

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::{AtomicU32, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};
use rustix::net::xdp::{XdpDesc, XdpRingFlags, XdpRingOffset};

/// What rings hold: numbers, of which any bytes are some.
pub(super) trait Entry: Copy {}

/// Place of a chunk in the shared memory.
impl Entry for u64 {}
impl Entry for XdpDesc {}

/// A ring of entries, of which this process is the producer, or the consumer.
pub(super) struct Ring<T> {
    memory: MmapRaw,
    offsets: XdpRingOffset,
    size: u32,
    /// Index of the next entry of the own side, and of the other one as far as it is known.
    own: u32,
    other: u32,
    entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// The ring of a socket that is at this place of its file.
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
        if indices.iter().flatten().any(|&at| at % 4 != 0 || at + 4 > length as u64)
            || !offsets.desc.is_multiple_of(align_of::<T>() as u64)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory, offsets, size, own: 0, other: 0, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: `new` has checked that four aligned bytes of the mapping are there, which lives
        // as long as the value. They are reached as an atomic only, also by the kernel.
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
        // the mapping is as long as its last entry needs
        self.memory.as_mut_ptr().wrapping_add(at).cast()
    }

    fn needs_wakeup(&self) -> bool {
        let flags = self.offsets.flags.map_or(0, |at| self.word(at).load(Ordering::Relaxed));
        XdpRingFlags::from_bits_retain(flags).contains(XdpRingFlags::XDP_RING_NEED_WAKEUP)
    }
}

/// A ring that this process fills.
pub(super) struct Producer<T>(pub(super) Ring<T>);

impl<T: Entry> Producer<T> {
    /// Number of entries that there is room for, looked up only if `wanted` are not known to be.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let ring = &mut self.0;
        if ring.size - ring.own.wrapping_sub(ring.other) < wanted {
            ring.other = ring.consumer().load(Ordering::Acquire);
        }
        ring.size.saturating_sub(ring.own.wrapping_sub(ring.other))
    }

    /// Writes an entry; `false`: there is no room. The kernel sees it when it is
    /// [submitted](Self::submit).
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        let ring = &mut self.0;
        // SAFETY: The entry is within the mapping and aligned. The kernel does not look at entries
        // that are not submitted, and has gone past the one that was here before.
        unsafe { ring.entry(ring.own).write(entry) };
        ring.own = ring.own.wrapping_add(1);
        true
    }

    /// Lets the kernel have what was written.
    pub(super) fn submit(&self) {
        self.0.producer().store(self.0.own, Ordering::Release);
    }

    /// True if the kernel has not taken all entries yet.
    pub(super) fn is_pending(&self) -> bool {
        self.0.consumer().load(Ordering::Acquire) != self.0.own
    }

    /// True if the kernel wants to be called before it goes on with the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// A ring that the kernel fills.
pub(super) struct Consumer<T>(pub(super) Ring<T>);

impl<T: Entry> Consumer<T> {
    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.own == ring.other {
            ring.other = ring.producer().load(Ordering::Acquire);
            if ring.own == ring.other {
                return None;
            }
        }
        // SAFETY: The entry is within the mapping and aligned, and any bytes are one. The kernel
        // has written it before it moved its index, and leaves it alone until ours has passed.
        let entry = unsafe { ring.entry(ring.own).read() };
        ring.own = ring.own.wrapping_add(1);
        ring.consumer().store(ring.own, Ordering::Release);
        Some(entry)
    }

    /// True if there is an entry.
    pub(super) fn is_ready(&self) -> bool {
        self.0.own != self.0.producer().load(Ordering::Acquire)
    }
}
