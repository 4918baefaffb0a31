//! Waiting for descriptors.

use std::{io, os::fd::BorrowedFd, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits for a readable descriptor, the timeout or a signal.
pub(crate) fn wait(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    match wait_or_signal(descriptors, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}

/// Like [`wait`], but a signal returns `EINTR`.
pub(crate) fn wait_or_signal(
    descriptors: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    poll(&mut polled, timeout.as_ref())?;
    Ok(())
}

pub(crate) fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
