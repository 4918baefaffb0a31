//! Interface of a GPU driver.

use std::{fmt, ops::Range, sync::Arc};

use roce_transport::mem::MemoryFault;

pub(super) trait Driver {
    /// Copies to and from a range; `None` if it does not begin in device memory.
    ///
    /// # Errors
    /// The first address outside, if the range only begins in device memory.
    fn find(&'static self, range: Range<u64>) -> Result<Option<Arc<dyn Copies>>, u64>;
}

/// Copies between device and process, in order. Calls return when the copy has ended, except
/// [`start_write`](Self::start_write).
pub(super) trait Copies: fmt::Debug + Send + Sync {
    fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryFault>;

    /// Starts a write and returns its number.
    fn start_write(&self, address: u64, from: &[u8]) -> Result<u64, MemoryFault>;

    fn has_ended(&self, number: u64) -> Result<bool, MemoryFault>;

    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryFault>;

    /// Replaces a word and returns the old value, atomically among calls of this process.
    fn exchange(&self, address: u64, new: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault>;
}
