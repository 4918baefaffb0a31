//! Socket options without a safe interface.

#![allow(unsafe_code, reason = "setsockopt takes a pointer")]

use std::{
    ffi::c_int,
    io,
    os::fd::{AsFd, AsRawFd},
    ptr,
};

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
