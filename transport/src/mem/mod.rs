//! Registered memory: keys, rights and bounds.
//!
//! Read first: InfiniBand volume 1, 10.6 (memory management). Peers may write the bytes at any
//! time: [`Memory`] gives no reference to them.

mod bind;
mod region;
mod table;
mod window;
mod words;

pub use crate::ids::{LKey, PdId, RKey, WindowId};
pub(crate) use region::User;
pub use region::{Access, AccessError, Region};
pub(crate) use table::RegionTable;
pub use table::{MrAttr, RegisterError, Reregister};
pub use window::{WindowBind, WindowError, WindowType};
pub use words::{HeapMemory, read_words, write_words};

use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use thiserror::Error;

/// Unmapped memory or a truncated file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("the region's memory is not accessible")]
pub struct MemoryFault;

/// Bytes that the program and peers access without a lock.
///
/// Methods return [`MemoryFault`] beyond [`len`](Memory::len) and for unreachable memory. They
/// never panic.
pub trait Memory: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// True if empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Atomic words, if the memory starts and ends on them.
    fn words(&self) -> Option<&[AtomicU64]> {
        None
    }

    /// Number of the first byte; the others follow. Memories that share bytes use the same numbers,
    /// which matches READs with WRITEs.
    fn origin(&self) -> u64 {
        let own = || core::ptr::from_ref(self).addr();
        self.words().map_or_else(own, |words| words.as_ptr().addr()) as u64
    }

    /// Whole word at `offset`.
    fn word(&self, offset: u64) -> Result<&AtomicU64, MemoryFault> {
        self.check(offset, 8)?;
        let word = self.words().and_then(|words| words.get((offset / 8) as usize));
        word.filter(|_| offset.is_multiple_of(8)).ok_or(MemoryFault)
    }

    /// Loads a word with acquire ordering.
    ///
    /// Memory without [`words`](Memory::words) implements the four atomic methods. Then the
    /// address, not `offset`, must be 8-byte aligned.
    fn load_u64(&self, offset: u64) -> Result<u64, MemoryFault> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores a word with release ordering.
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryFault> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Replaces `compare` with `swap`; returns the old value.
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let found =
            self.word(offset)?.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        Ok(found.unwrap_or_else(|other| other))
    }

    /// Adds to a word, wrapping; returns the old value.
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemoryFault> {
        Ok(self.word(offset)?.fetch_add(add, Ordering::AcqRel))
    }

    /// Checks a range.
    fn check(&self, offset: u64, length: usize) -> Result<(), MemoryFault> {
        let end = offset.checked_add(length as u64).ok_or(MemoryFault)?;
        if end > self.len() { Err(MemoryFault) } else { Ok(()) }
    }

    /// Copies from `offset` into `to`.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault>;

    /// Copies `from` to `offset`.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault>;

    /// Called before a peer's WRITE or atomic.
    fn peer_changes(&self, _offset: u64, _length: u64) {}

    /// True if a write may end after [`start_write`](Memory::start_write), as in another device's
    /// memory.
    fn is_behind_driver(&self) -> bool {
        false
    }

    /// Starts to copy `from` to `offset`, behind earlier copies. Returns a number for
    /// [`has_ended`](Memory::has_ended).
    fn start_write(&self, offset: u64, from: &[u8]) -> Result<u64, MemoryFault> {
        self.write_at(offset, from).map(|()| 0)
    }

    /// True if a copy has ended; [`MemoryFault`] if the copy failed.
    fn has_ended(&self, _copy: u64) -> Result<bool, MemoryFault> {
        Ok(true)
    }

    /// True if [`persist`](Memory::persist) works, as `FLUSH_PERSISTENT` requires.
    fn is_persistent(&self) -> bool {
        false
    }

    /// Makes the range survive power loss.
    fn persist(&self, _offset: u64, _length: u64) -> Result<(), MemoryFault> {
        Err(MemoryFault)
    }

    /// Prefetches the range (`ibv_advise_mr`).
    fn prefetch(&self, _offset: u64, _length: u64) -> Result<(), MemoryFault> {
        Ok(())
    }
}

impl fmt::Debug for dyn Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len()).finish_non_exhaustive()
    }
}
