//! Memory of a ring that a few runs fill.

use std::{io, sync::Arc};

pub(super) use crate::atomic::{AtomicU64, Ordering, fence};

pub(super) const CAPACITY: u64 = 64;
pub(super) const HOT: u64 = 32;
pub(super) const PAGE: u64 = 16;
/// After the words with positions.
pub(super) const START: u64 = 24 * 8;

pub(super) type Descriptor = RingMemory;

#[derive(Debug, Clone)]
pub(crate) struct RingMemory(Arc<Vec<AtomicU64>>);

impl RingMemory {
    pub(super) fn create() -> io::Result<(Self, Descriptor)> {
        let words = (0..(START + CAPACITY) / 8).map(|_| AtomicU64::new(0));
        let memory = Self(Arc::new(words.collect()));
        Ok((memory.clone(), memory))
    }

    pub(super) fn open(memory: Descriptor) -> io::Result<Self> {
        Ok(memory)
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn range(&self, offset: u64, length: usize) -> &[AtomicU64] {
        &self.0[offset as usize / 8..][..length.div_ceil(8)]
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), ()> {
        for (word, bytes) in self.range(offset, to.len()).iter().zip(to.chunks_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..bytes.len()]);
        }
        Ok(())
    }

    /// Writes whole words only.
    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ()> {
        for (word, bytes) in self.range(offset, from.len()).iter().zip(from.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        Ok(())
    }
}
