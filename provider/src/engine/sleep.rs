//! Sleeping, and ending a sleep: what the system does for the threads of an engine. The models of
//! concurrency (`models/`) have another file in the place of this one.

pub(super) use std::thread;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::{loop_descriptor::LoopDescriptor, serve::Engine};
use crate::{
    port::Watch,
    readiness::{is_readable, wait, wait_or_signal},
};

/// Number of looks at a program's event loop without anything, after which the background thread
/// serves, and may sleep for longer.
pub(super) const IDLE_LOOKS: u32 = 64;

/// Number of turns of a loop that take longer than a program's poll, some microseconds.
pub(super) const PAUSE: u32 = 256;

/// Descriptor that becomes readable with what a thread of the program waits for.
pub(crate) type Wanted<'a> = BorrowedFd<'a>;

/// A timer that ends sleeps, if the system has such.
pub(super) fn timer() -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags).ok()
}

impl Engine {
    /// Sleeps until someone wakes the background thread, the interface changes, something arrives
    /// (if that matters) or the time is over.
    pub(super) fn sleep(&self, for_packets: bool, timeout: Option<Duration>) -> io::Result<()> {
        let looks_after = self.interface.watch.as_ref().and_then(Watch::looks_after);
        let timeout = [timeout, looks_after].into_iter().flatten().min();
        let sockets = for_packets.then(|| self.system.sockets.as_fd());
        let timer = self.system.timer.as_ref().map(AsFd::as_fd);
        let watch = self.interface.watch.as_ref().map(AsFd::as_fd);
        let descriptors = [Some(self.system.wake.as_fd()), timer, watch, sockets];
        wait(&descriptors.into_iter().flatten().collect::<Vec<_>>(), timeout)
    }

    /// Sleeps on a thread of the program until it has what it waits for, something arrives or the
    /// time is over.
    pub(super) fn sleep_driving(
        &self,
        wanted: Wanted<'_>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        wait_or_signal(&[wanted, self.system.sockets.as_fd()], timeout)
    }

    /// Sets the descriptor of a channel that the program may wait for in an event loop, unless the
    /// device has one. One wakes the program for all its channels.
    pub(crate) fn make_loop_descriptor<T: LoopDescriptor + 'static>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<Arc<T>>> {
        if self.has_background() { self.system.loop_slot.fill(make) } else { Ok(None) }
    }

    /// Has it be readable when the sockets are. False if the program does not wait for it.
    pub(super) fn join_loop(&self) -> bool {
        self.system.loop_slot.join(self.system.sockets.as_fd())
    }

    /// Ends that.
    pub(super) fn part_loop(&self) {
        self.system.loop_slot.part(self.system.sockets.as_fd());
    }

    pub(super) fn are_sockets_readable(&self) -> bool {
        is_readable(self.system.sockets.as_fd())
    }

    /// Ends the sleep of the background thread, or the next one.
    pub(super) fn wake_background(&self) {
        // full means that it is awake already
        let _ = rustix::io::write(&self.system.wake, &1u64.to_ne_bytes());
    }

    /// The background thread has heard that it was woken.
    pub(super) fn clear_wakeup(&self) {
        for descriptor in
            [Some(&self.system.wake), self.system.timer.as_ref()].into_iter().flatten()
        {
            let _ = rustix::io::read(descriptor, &mut [0; 8]);
        }
    }

    /// Ends the sleep of the background thread so much later, or the next one.
    pub(super) fn set_timer(&self, after: Duration) {
        let (Some(timer), Ok(it_value)) = (&self.system.timer, Timespec::try_from(after)) else {
            return;
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Sleeps for this time, or until the timer's.
    pub(super) fn sleep_beside_timer(&self, time: Duration) {
        match &self.system.timer {
            Some(timer) => drop(wait(&[timer.as_fd()], Some(time))),
            None => thread::sleep(time),
        }
    }
}
