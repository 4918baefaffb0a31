//! Program buffers of one call, copied without references: they may be registered memory.

#![allow(unsafe_code, reason = "calling the routines")]

use roce_transport::mem::MemoryFault;

use super::{guard::done, kernel, routines};

/// Copies `length` bytes at `address` to `to`, which may be uninitialised.
///
/// # Errors
/// [`MemoryFault`] if missing memory is noticed; elsewhere the program faults.
///
/// # Safety
/// The memory is readable; `to` is writable, `length` bytes long, and unshared.
pub unsafe fn copy_from_program(
    address: *const u8,
    to: *mut u8,
    length: usize,
) -> Result<(), MemoryFault> {
    if !routines::EXIST {
        // SAFETY: by the contract; the bytes are initialised first
        let to = unsafe {
            to.write_bytes(0, length);
            std::slice::from_raw_parts_mut(to, length)
        };
        return kernel::read(address.addr(), to);
    }
    // SAFETY: by the contract
    done(unsafe { routines::copy_in(to, address.addr(), length) })
}

/// Copies `from` to `address`; errors as for [`copy_from_program`].
///
/// # Safety
/// The memory is writable.
pub unsafe fn copy_to_program(address: *mut u8, from: &[u8]) -> Result<(), MemoryFault> {
    if !routines::EXIST {
        // SAFETY: by the contract
        return unsafe { kernel::write(address.addr(), from) };
    }
    // SAFETY: by the contract
    done(unsafe { routines::copy_out(address.addr(), from.as_ptr(), from.len()) })
}
