//! Socket options without a safe interface.

#![allow(unsafe_code, reason = "setsockopt and getsockopt take pointers")]

use std::{
    ffi::c_int,
    io, mem,
    os::fd::{AsFd, AsRawFd},
    ptr,
};

/// # Safety
/// `T` is what the kernel gives for the option, and may be all zero.
pub(super) unsafe fn option<T: Copy>(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
) -> io::Result<T> {
    // SAFETY: See above.
    let mut value: T = unsafe { mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: The kernel writes at most `length` bytes to the value, and then the length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match result {
        0 if length as usize == size_of::<T>() => Ok(value),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn set_option<T>(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: The kernel reads the value's bytes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
