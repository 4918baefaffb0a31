//! Process memory through a pipe, where sandboxes refuse the calls of [`kernel`](super::kernel):
//! slower; missing memory is an error too.

#![allow(unsafe_code, reason = "memory that may not be there is no slice")]

use std::{
    ffi::c_void,
    io::{self, PipeReader, PipeWriter},
    os::fd::AsRawFd,
};

use roce_transport::mem::MemoryFault;

/// Bytes at a time: the capacity of the smallest pipe.
const PART: usize = 4096;

/// Copies foreign bytes into `to`.
pub(super) fn read(address: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
    let pipe = Pipe::new()?;
    for (part, from) in to.chunks_mut(PART).zip((address..).step_by(PART)) {
        pipe.fill(from, part.len())?;
        // SAFETY: it is borrowed for that
        unsafe { pipe.empty(part.as_mut_ptr() as usize, part.len())? };
    }
    Ok(())
}

/// Copies `from` to `address`.
///
/// # Safety
/// If the memory at `address` exists, it may be written.
pub(super) unsafe fn write(address: usize, from: &[u8]) -> Result<(), MemoryFault> {
    let pipe = Pipe::new()?;
    for (part, to) in from.chunks(PART).zip((address..).step_by(PART)) {
        pipe.fill(part.as_ptr() as usize, part.len())?;
        // SAFETY: the caller promises the same
        unsafe { pipe.empty(to, part.len())? };
    }
    Ok(())
}

/// One per copy, so a forked process shares none.
struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Pipe {
    fn new() -> Result<Self, MemoryFault> {
        let (reader, writer) = io::pipe().map_err(|_| MemoryFault)?;
        Ok(Self { reader, writer })
    }

    /// Fills the pipe from `address`.
    fn fill(&self, address: usize, length: usize) -> Result<(), MemoryFault> {
        // SAFETY: the kernel reads only what it can
        let done =
            unsafe { libc::write(self.writer.as_raw_fd(), address as *const c_void, length) };
        whole(done, length)
    }

    /// Empties the pipe to `address`.
    ///
    /// # Safety
    /// If the memory there exists, it may be written.
    unsafe fn empty(&self, address: usize, length: usize) -> Result<(), MemoryFault> {
        // SAFETY: the kernel writes what the caller says may be written, if it can
        let done = unsafe { libc::read(self.reader.as_raw_fd(), address as *mut c_void, length) };
        whole(done, length)
    }
}

fn whole(done: isize, length: usize) -> Result<(), MemoryFault> {
    if usize::try_from(done) == Ok(length) { Ok(()) } else { Err(MemoryFault) }
}
