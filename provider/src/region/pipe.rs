//! Foreign memory through a pipe, where a sandbox refuses the calls of [`kernel`](super::kernel):
//! slower still.

#![allow(unsafe_code, reason = "memory that may not be there is no slice")]

use std::{
    ffi::c_void,
    io::{self, PipeReader, PipeWriter},
    os::fd::AsRawFd,
};

use roce_transport::mem::MemoryFault;

/// Capacity of the smallest pipe, in bytes.
const PART: usize = 4096;

pub(super) fn read(address: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
    let pipe = Pipe::new()?;
    for (part, from) in to.chunks_mut(PART).zip((address..).step_by(PART)) {
        pipe.fill(from, part.len())?;
        // SAFETY: `part` is borrowed for the call
        unsafe { pipe.empty(part.as_mut_ptr() as usize, part.len())? };
    }
    Ok(())
}

/// # Safety
/// Memory at `address`, if any, may be written.
pub(super) unsafe fn write(address: usize, from: &[u8]) -> Result<(), MemoryFault> {
    let pipe = Pipe::new()?;
    for (part, to) in from.chunks(PART).zip((address..).step_by(PART)) {
        pipe.fill(part.as_ptr() as usize, part.len())?;
        // SAFETY: the caller promises the same
        unsafe { pipe.empty(to, part.len())? };
    }
    Ok(())
}

/// Created per copy, so a forked process shares none.
struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Pipe {
    fn new() -> Result<Self, MemoryFault> {
        let (reader, writer) = io::pipe().map_err(|_| MemoryFault)?;
        Ok(Self { reader, writer })
    }

    fn fill(&self, address: usize, length: usize) -> Result<(), MemoryFault> {
        // SAFETY: the kernel reads only what exists
        let done =
            unsafe { libc::write(self.writer.as_raw_fd(), address as *const c_void, length) };
        whole(done, length)
    }

    /// # Safety
    /// Memory at `address`, if any, may be written.
    unsafe fn empty(&self, address: usize, length: usize) -> Result<(), MemoryFault> {
        // SAFETY: the caller promises writability
        let done = unsafe { libc::read(self.reader.as_raw_fd(), address as *mut c_void, length) };
        whole(done, length)
    }
}

fn whole(done: isize, length: usize) -> Result<(), MemoryFault> {
    if usize::try_from(done) == Ok(length) { Ok(()) } else { Err(MemoryFault) }
}
