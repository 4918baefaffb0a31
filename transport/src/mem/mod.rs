//! Registered memory: keys, access rights and bounds.
//!
//! Read first: InfiniBand volume 1, 10.6 (memory management). The bytes themselves are behind the [`Memory`] trait, because a
//! peer may write them at any time: nothing here ever holds a reference to them.

mod heap;
mod region;
mod table;
mod words;

pub use heap::HeapMemory;
pub use region::{Access, AccessError, LKey, PdId, RKey, Region};
pub(crate) use table::RegionTable;
pub use words::{read_words, write_words};

use core::sync::atomic::AtomicU64;
pub use table::{MrAttr, RegisterError};

use thiserror::Error;

/// Memory that is gone: unmapped under us, or a file cut short.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("the memory behind the region cannot be reached")]
pub struct MemoryFault;

/// Bytes that both the program and its peers read and write, at any time and without a lock.
///
/// Offsets are checked by the caller against [`len`](Memory::len). An implementation must not panic for an offset beyond the
/// end but answer [`MemoryFault`].
pub trait Memory: Send + Sync {
    /// Bytes in all.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory as words, where it starts on one and ends with a whole one: for accesses that are atomic on a word.
    fn words(&self) -> Option<&[AtomicU64]> {
        None
    }

    /// Whether `length` bytes at `offset` are inside.
    ///
    /// # Errors
    /// [`MemoryFault`] when they are not.
    fn check(&self, offset: u64, length: usize) -> Result<(), MemoryFault> {
        let end = offset.checked_add(length as u64).ok_or(MemoryFault)?;
        if end > self.len() { Err(MemoryFault) } else { Ok(()) }
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory cannot be reached.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault>;

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory cannot be reached.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault>;
}
