//! Memory that the program owns, and may take away at any time.

#![allow(unsafe_code, reason = "the constructors' promises are the callers', and this is where they are used")]

use roce_transport::mem::{Access, Memory, MemoryFault};
use thiserror::Error;

use super::{faults, guard, reach};

/// Part of memory that was to be registered is not there, or cannot be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("the memory at {address:#x} cannot be {}", if *.write { "read and written" } else { "read" })]
pub struct Unreachable {
    /// Where, as far as it is known.
    pub address: u64,
    /// Whether it was to be written, too.
    pub write: bool,
}

/// Memory that the program owns: of any kind, at any address, reached through its address and never through a reference.
///
/// It may be unmapped, protected or cut short (a file) while it is registered: then accesses fail with [`MemoryFault`]. What
/// is mapped there later belongs to the region again, because an address is all that there is to it. So take the region away
/// before the memory.
///
/// Eight-byte operations work where the address of the byte is a multiple of eight.
#[derive(Debug)]
pub struct ForeignMemory {
    address: usize,
    len: usize,
}

impl ForeignMemory {
    /// The `length` bytes from `pointer` on, which must all be there and readable, and writable if `access` has any right to
    /// write. They are brought in if they are few; no byte changes.
    ///
    /// # Errors
    /// [`Unreachable`] (`EFAULT`).
    ///
    /// # Safety
    /// As long as this value lives (a region holds it, and so do requests that use the region): whatever is mapped in this range
    /// may be read at any time, and, where this memory is registered with a right to write or is written through this value,
    /// written at any time. That is: no Rust reference into it is used then whose guarantees such an access would break, and
    /// nothing relies on these bytes for its own soundness.
    pub unsafe fn new(pointer: *mut u8, length: usize, access: Access) -> Result<Self, Unreachable> {
        let address = pointer.expose_provenance();
        let write = access.intersects(Access::LOCAL_WRITE | Access::REMOTE_CHANGE);
        let unreachable = |address: usize| Unreachable { address: address as u64, write };
        let end = address.checked_add(length).ok_or(unreachable(usize::MAX))?;
        reach::check(address..end, write).map_err(unreachable)?;
        // SAFETY: the caller promises the same
        Ok(unsafe { Self::on_demand(pointer, length) })
    }

    /// The same without a look at the memory: what is missing shows when it is used.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[must_use]
    pub unsafe fn on_demand(pointer: *mut u8, length: usize) -> Self {
        faults::are_in_front(true);
        Self { address: pointer.expose_provenance(), len: length }
    }

    /// The address of a byte, if `length` bytes from there on are inside.
    fn at(&self, offset: u64, length: usize) -> Result<usize, MemoryFault> {
        self.check(offset, length)?;
        let address = self.address.checked_add(offset as usize).ok_or(MemoryFault)?;
        address.checked_add(length).map(|_| address).ok_or(MemoryFault)
    }
}

impl Memory for ForeignMemory {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        guard::read(self.at(offset, to.len())?, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        let address = self.at(offset, from.len())?;
        // SAFETY: whoever made this value promised that it may be written
        unsafe { guard::write(address, from) }
    }

    fn load_u64(&self, offset: u64) -> Result<u64, MemoryFault> {
        guard::load(self.at(offset, 8)?)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryFault> {
        let address = self.at(offset, 8)?;
        // SAFETY: as above
        unsafe { guard::store(address, value) }
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let address = self.at(offset, 8)?;
        // SAFETY: as above
        unsafe { guard::compare_swap(address, compare, swap) }
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemoryFault> {
        let address = self.at(offset, 8)?;
        // SAFETY: as above
        unsafe { guard::fetch_add(address, add) }
    }

    fn prefetch(&self, offset: u64, length: u64) -> Result<(), MemoryFault> {
        let length = usize::try_from(length).map_err(|_| MemoryFault)?;
        let start = self.at(offset, length)?;
        reach::bring_in(start..start + length, false).map_err(|_| MemoryFault)
    }
}
