//! Program buffers of one call. They may be registered memory, so they are copied without
//! references.

#![allow(unsafe_code, reason = "calling the routines")]

use roce_transport::mem::MemoryFault;

use super::{kernel, routines};

/// Copies `length` bytes at `address` to `to`, which may be uninitialised.
///
/// # Errors
/// The memory is missing and this was noticed; elsewhere it faults in the program.
///
/// # Safety
/// The memory may be read. `to` is for writing, of this length, and nobody else's.
pub unsafe fn copy_from_program(
    address: *const u8,
    to: *mut u8,
    length: usize,
) -> Result<(), MemoryFault> {
    if !routines::EXIST {
        // SAFETY: By the contract; what it refers to is written first.
        let to = unsafe {
            to.write_bytes(0, length);
            std::slice::from_raw_parts_mut(to, length)
        };
        return kernel::read(address.addr(), to);
    }
    // SAFETY: It writes `to`, and reads what the caller says may be read.
    let status = unsafe { routines::copy_in(to, address.addr(), length) };
    if status == 0 { Ok(()) } else { Err(MemoryFault) }
}

/// Copies `from` to `address`.
///
/// # Errors
/// As for [`copy_from_program`].
///
/// # Safety
/// The memory may be written.
pub unsafe fn copy_to_program(address: *mut u8, from: &[u8]) -> Result<(), MemoryFault> {
    if !routines::EXIST {
        // SAFETY: The caller promises the same.
        return unsafe { kernel::write(address.addr(), from) };
    }
    // SAFETY: It reads `from`, and writes what the caller says may be written.
    let status = unsafe { routines::copy_out(address.addr(), from.as_ptr(), from.len()) };
    if status == 0 { Ok(()) } else { Err(MemoryFault) }
}
