//! System calls to sleep and to wake an engine's threads. `models/` replaces this file.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
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

/// Idle checks of an event loop after which the background thread serves and may sleep longer.
pub(super) const IDLE_LOOKS: u32 = 64;

/// Spin iterations longer than a program's poll: some microseconds.
pub(super) const PAUSE: u32 = 256;

/// Descriptor that wakes a waiting program thread.
pub(crate) type Wanted<'a> = BorrowedFd<'a>;

pub(super) fn timer() -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags).ok()
}

impl Engine {
    /// Sleeps until a wakeup, an interface change, an arrival (if `for_packets`) or the timeout.
    pub(super) fn sleep(&self, for_packets: bool, timeout: Option<Duration>) -> io::Result<()> {
        let next_check = self.interface.watch.as_ref().and_then(Watch::next_check_in);
        let timeout = [timeout, next_check].into_iter().flatten().min();
        let sockets = for_packets.then(|| self.system.sockets.as_fd());
        let timer = self.system.timer.as_ref().map(AsFd::as_fd);
        let watch = self.interface.watch.as_ref().map(AsFd::as_fd);
        let descriptors = [Some(self.system.wake.as_fd()), timer, watch, sockets];
        wait(&descriptors.into_iter().flatten().collect::<Vec<_>>(), timeout)
    }

    pub(super) fn sleep_on_sockets(
        &self,
        wanted: Wanted<'_>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        wait_or_signal(&[wanted, self.system.sockets.as_fd()], timeout)
    }

    /// `None` if the device has a descriptor: one wakes the program for all channels.
    pub(crate) fn make_loop_descriptor<T: LoopDescriptor + 'static>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<Arc<T>>> {
        if self.has_background() { self.system.loop_slot.fill(make) } else { Ok(None) }
    }

    pub(super) fn join_loop(&self) -> bool {
        self.system.loop_slot.join(self.system.sockets.as_fd())
    }

    pub(super) fn detach_loop(&self) {
        self.system.loop_slot.detach(self.system.sockets.as_fd());
    }

    pub(super) fn are_sockets_readable(&self) -> bool {
        is_readable(self.system.sockets.as_fd())
    }

    /// Ends the background thread's present or next sleep.
    pub(super) fn wake_background(&self) {
        // full: already awake
        let _ = rustix::io::write(&self.system.wake, &1u64.to_ne_bytes());
    }

    pub(super) fn clear_wakeup(&self) {
        for descriptor in
            [Some(&self.system.wake), self.system.timer.as_ref()].into_iter().flatten()
        {
            let _ = rustix::io::read(descriptor, &mut [0; 8]);
        }
    }

    /// Wakes the background thread after this time.
    pub(super) fn set_timer(&self, after: Duration) {
        let (Some(timer), Ok(it_value)) = (&self.system.timer, Timespec::try_from(after)) else {
            return;
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
    }

    pub(super) fn sleep_beside_timer(&self, time: Duration) {
        match &self.system.timer {
            Some(timer) => drop(wait(&[timer.as_fd()], Some(time))),
            None => thread::sleep(time),
        }
    }
}
