//! Sleeping, and ending a sleep: what the system does for the threads of an engine. The models of
//! concurrency (`models/`) have another file in the place of this one.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};
pub(super) use std::{sync::atomic::AtomicU64, thread};

use super::serve::Engine;
use crate::{port::Watch, readiness::wait};

/// Descriptor that becomes readable with what a thread of the program waits for.
pub(crate) type Wanted<'a> = BorrowedFd<'a>;

impl Engine {
    /// Sleeps until someone wakes the background thread, the interface changes, something arrives
    /// (if that matters) or the time is over.
    pub(super) fn sleep(&self, for_packets: bool, timeout: Option<Duration>) -> io::Result<()> {
        let looks_after = self.watch.as_ref().and_then(Watch::looks_after);
        let timeout = [timeout, looks_after].into_iter().flatten().min();
        let sockets = for_packets.then(|| self.sockets.as_fd());
        let descriptors = [Some(self.wake.as_fd()), self.watch.as_ref().map(AsFd::as_fd), sockets];
        wait(&descriptors.into_iter().flatten().collect::<Vec<_>>(), timeout)
    }

    /// Sleeps on a thread of the program until it has what it waits for, something arrives or the
    /// time is over.
    pub(super) fn sleep_driving(
        &self,
        wanted: Wanted<'_>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        wait(&[wanted, self.sockets.as_fd()], timeout)
    }

    /// Ends the sleep of the background thread, or the next one.
    pub(super) fn wake_background(&self) {
        // full means that it is awake already
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The background thread has heard that it was woken.
    pub(super) fn clear_wakeup(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}
