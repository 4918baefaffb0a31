//! Functions that a driver has.

use std::{fmt, ops::Range, sync::Arc};

use roce_transport::mem::MemoryFault;

/// Driver of devices that have memory of their own.
pub(super) trait Driver {
    /// The way of copying to and from a range of addresses; `None` if the first is no address of
    /// device memory.
    ///
    /// # Errors
    /// The first address that is not, of a range that only begins in device memory.
    fn find(&'static self, range: Range<u64>) -> Result<Option<Arc<dyn Copies>>, u64>;
}

/// Copies between memory of a device and memory of the process, one behind the other. Each has
/// ended when the call returns, but for those that are started.
pub(super) trait Copies: fmt::Debug + Send + Sync {
    /// Copies to the device.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryFault>;

    /// Starts a copy to the device, and returns its number.
    fn start_write(&self, address: u64, from: &[u8]) -> Result<u64, MemoryFault>;

    /// True if a copy that was started has ended.
    fn has_ended(&self, number: u64) -> Result<bool, MemoryFault>;

    /// Copies from the device.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryFault>;

    /// Replaces a word, and returns what it was. No other call of this process comes between.
    fn exchange(&self, address: u64, new: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault>;
}
