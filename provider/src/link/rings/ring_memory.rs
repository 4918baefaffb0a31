//! Memory of a ring. The concurrency models (`models/`) replace this file, and run the ring's code.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::{fs::File, io, os::fd::OwnedFd};

use roce_transport::mem::{Memory, MemoryFault};

use crate::{link::sealed, region::MmapMemory};

/// Most bytes of unread records; a power of two.
pub(super) const CAPACITY: u64 = 2 << 20;
/// Bytes that the writer reuses while the reader keeps up: they fit into caches.
pub(super) const HOT: u64 = 512 << 10;
pub(super) const PAGE: u64 = 4096;
/// Start of the records, behind a page with the positions.
pub(super) const START: u64 = PAGE;
const SIZE: u64 = START + CAPACITY;

pub(super) type Descriptor = OwnedFd;

pub(super) struct RingMemory(MmapMemory);

impl RingMemory {
    pub(super) fn create() -> io::Result<(Self, Descriptor)> {
        let file = sealed::create("roce ring", SIZE)?;
        Ok((Self::map(&file)?, file.into()))
    }

    pub(super) fn open(memory: Descriptor) -> io::Result<Self> {
        Self::map(&memory.into())
    }

    /// Maps the memory and faults in the pages that are used first.
    fn map(file: &File) -> io::Result<Self> {
        let memory = Self(sealed::map(file, SIZE)?);
        for word in memory.words()[..((START + HOT) / 8) as usize].iter().step_by(PAGE as usize / 8)
        {
            word.fetch_add(0, Ordering::Relaxed);
        }
        Ok(memory)
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        self.0.words().unwrap_or_default()
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.read_at(offset, to)
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.0.write_at(offset, from)
    }
}
