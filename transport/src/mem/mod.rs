//! Registered memory: keys, access rights and bounds.
//!
//! Read first: InfiniBand volume 1, 10.6 (memory management). The bytes themselves are behind the
//! [`Memory`] trait, because a peer may write them at any time: nothing here ever holds a reference
//! to them.

mod bind;
mod heap;
mod region;
mod table;
mod window;
mod words;

pub use crate::ids::{LKey, PdId, RKey, WindowId};
pub use heap::HeapMemory;
pub(crate) use region::User;
pub use region::{Access, AccessError, Region};
pub(crate) use table::RegionTable;
pub use table::{MrAttr, RegisterError, Reregister};
pub use window::{WindowBind, WindowError, WindowType};
pub use words::{read_words, write_words};

use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use thiserror::Error;

/// Memory that is gone: unmapped under us, or a file cut short.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("the memory behind the region cannot be reached")]
pub struct MemoryFault;

/// Bytes that both the program and its peers read and write, at any time and without a lock.
///
/// Offsets are checked by the caller against [`len`](Memory::len). An implementation must not panic
/// for an offset beyond the end but answer [`MemoryFault`].
pub trait Memory: Send + Sync {
    /// Bytes in all.
    fn len(&self) -> u64;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory as words, where it starts on one and ends with a whole one: for accesses that are
    /// atomic on a word.
    fn words(&self) -> Option<&[AtomicU64]> {
        None
    }

    /// A number for the first byte, which those after it follow: where it lies. Memory that shows
    /// the same bytes says the same of them, so that a READ is known to be of what a WRITE changes.
    /// By default of the [`words`](Memory::words), or else one that no other memory has.
    fn origin(&self) -> u64 {
        let own = || core::ptr::from_ref(self).addr();
        self.words().map_or_else(own, |words| words.as_ptr().addr()) as u64
    }

    /// The word at `offset`.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory has no whole word that starts there.
    fn word(&self, offset: u64) -> Result<&AtomicU64, MemoryFault> {
        self.check(offset, 8)?;
        let word = self.words().and_then(|words| words.get((offset / 8) as usize));
        word.filter(|_| offset.is_multiple_of(8)).ok_or(MemoryFault)
    }

    /// The word at `offset`, read at once, with acquire ordering.
    ///
    /// Memory that is not reached through references to [`words`](Memory::words) implements this
    /// and the following three itself. Then the byte's address, not `offset`, must be a multiple of
    /// eight.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory has no whole word that starts there, or cannot be reached.
    fn load_u64(&self, offset: u64) -> Result<u64, MemoryFault> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Sets the word at `offset` at once, with release ordering.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory has no whole word that starts there, or cannot be reached.
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryFault> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Sets the word at `offset` to `swap` if it is `compare`, at once, and returns what it was.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory has no whole word that starts there, or cannot be reached.
    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let found =
            self.word(offset)?.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        Ok(found.unwrap_or_else(|other| other))
    }

    /// Adds to the word at `offset` at once, wrapping around, and returns what it was.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory has no whole word that starts there, or cannot be reached.
    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemoryFault> {
        Ok(self.word(offset)?.fetch_add(add, Ordering::AcqRel))
    }

    /// Checks that `length` bytes at `offset` are inside.
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

    /// True if a write may end later than the call ([`start_write`](Memory::start_write)), as with
    /// memory of another device.
    fn is_behind_driver(&self) -> bool {
        false
    }

    /// Starts to copy `from` to `offset`, behind what was started before. Returns a number for
    /// [`has_ended`](Memory::has_ended).
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory cannot be reached.
    fn start_write(&self, offset: u64, from: &[u8]) -> Result<u64, MemoryFault> {
        self.write_at(offset, from).map(|()| 0)
    }

    /// True if a copy has ended.
    ///
    /// # Errors
    /// [`MemoryFault`] when it has failed.
    fn has_ended(&self, _copy: u64) -> Result<bool, MemoryFault> {
        Ok(true)
    }

    /// True if [`persist`](Memory::persist) works. Without it the right `FLUSH_PERSISTENT` cannot
    /// be granted.
    fn is_persistent(&self) -> bool {
        false
    }

    /// Makes the range survive a loss of power; returns when that is done.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory cannot do that, or failed to.
    fn persist(&self, _offset: u64, _length: u64) -> Result<(), MemoryFault> {
        Err(MemoryFault)
    }

    /// Fetches the range, so that the first access to it does not wait (`ibv_advise_mr`). Nothing
    /// by default.
    ///
    /// # Errors
    /// [`MemoryFault`] when the memory cannot be reached.
    fn prefetch(&self, _offset: u64, _length: u64) -> Result<(), MemoryFault> {
        Ok(())
    }
}

impl fmt::Debug for dyn Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len()).finish_non_exhaustive()
    }
}
