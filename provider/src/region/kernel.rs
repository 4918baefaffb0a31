//! Foreign memory through the kernel: slow, but missing memory is only an error.

#![allow(unsafe_code, reason = "there is no safe interface to process_vm_readv")]

use std::{
    ffi::c_void,
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use roce_transport::mem::MemoryFault;

use super::pipe;

/// Set if a sandbox or a Linux emulation refuses the calls.
static ARE_REFUSED: AtomicBool = AtomicBool::new(false);

pub(super) fn read(address: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
    let (own, there) = (vector(to.as_mut_ptr() as usize, to.len()), vector(address, to.len()));
    // SAFETY: the kernel writes `to`, and reads only what exists
    let call = || unsafe { libc::process_vm_readv(libc::getpid(), &own, 1, &there, 1, 0) };
    copied(call, to.len()).unwrap_or_else(|| pipe::read(address, to))
}

/// # Safety
/// Memory at `address`, if any, may be written.
pub(super) unsafe fn write(address: usize, from: &[u8]) -> Result<(), MemoryFault> {
    let (own, there) = (vector(from.as_ptr() as usize, from.len()), vector(address, from.len()));
    // SAFETY: the kernel reads `from`; the caller promises writability
    let call = || unsafe { libc::process_vm_writev(libc::getpid(), &own, 1, &there, 1, 0) };
    // SAFETY: the caller promises the same
    copied(call, from.len()).unwrap_or_else(|| unsafe { pipe::write(address, from) })
}

/// `None` if the call is refused.
fn copied(call: impl FnOnce() -> isize, length: usize) -> Option<Result<(), MemoryFault>> {
    if ARE_REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let copied = call();
    if usize::try_from(copied) == Ok(length) {
        return Some(Ok(()));
    }
    let error = io::Error::last_os_error().raw_os_error();
    if copied < 0 && matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
        ARE_REFUSED.store(true, Ordering::Relaxed);
        return None;
    }
    Some(Err(MemoryFault))
}

fn vector(address: usize, length: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut c_void, iov_len: length }
}
