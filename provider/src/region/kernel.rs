//! This process's memory through the kernel: slow, and an access to memory that does not exist is
//! only an error.

#![allow(unsafe_code, reason = "there is no safe interface to process_vm_readv")]

use std::ffi::c_void;

use roce_transport::mem::MemoryFault;

/// Copies what is at `address` into `to`.
pub(super) fn read(address: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
    let (own, there) = (vector(to.as_mut_ptr() as usize, to.len()), vector(address, to.len()));
    // SAFETY: the kernel writes `to`, which is borrowed for that, and reads elsewhere only what it
    // can
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &own, 1, &there, 1, 0) };
    if usize::try_from(copied) == Ok(to.len()) { Ok(()) } else { Err(MemoryFault) }
}

/// Copies `from` to `address`.
///
/// # Safety
/// If the memory at `address` exists, it may be written.
pub(super) unsafe fn write(address: usize, from: &[u8]) -> Result<(), MemoryFault> {
    let (own, there) = (vector(from.as_ptr() as usize, from.len()), vector(address, from.len()));
    // SAFETY: the kernel reads `from`, and writes what the caller says may be written, if it can
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &own, 1, &there, 1, 0) };
    if usize::try_from(copied) == Ok(from.len()) { Ok(()) } else { Err(MemoryFault) }
}

fn vector(address: usize, length: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut c_void, iov_len: length }
}
