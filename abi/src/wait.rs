//! Waiting for descriptors. Cancellation unwinds: callers of a cancellation point may hold nothing
//! to drop.

use std::{
    ffi::{c_int, c_short, c_ulong},
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::{
    errno::{Errno, Result},
    hooks::check::waits,
};

/// Makes a descriptor blocking, as programs expect.
pub(crate) fn blocking(descriptor: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(descriptor)?;
    Ok(fcntl_setfl(descriptor, flags - OFlags::NONBLOCK)?)
}

/// Nothing to drop.
#[derive(Clone, Copy)]
pub(crate) enum Polled<T: Copy> {
    Event(T),
    /// Wait on this descriptor.
    Nothing(c_int),
}

impl<T: Copy> Polled<T> {
    pub(crate) fn of(event: Option<T>, descriptor: c_int) -> Self {
        event.map_or(Self::Nothing(descriptor), Self::Event)
    }
}

mod cancellable {
    unsafe extern "C-unwind" {
        pub(crate) safe fn pthread_testcancel();
        pub(crate) fn poll(
            fds: *mut libc::pollfd,
            number: super::c_ulong,
            timeout: super::c_int,
        ) -> super::c_int;
    }
}

/// Polls until any signal. Cancellation point.
pub(crate) use cancellable::poll as poll_once;
/// Cancellation point for calls that do not wait.
pub(crate) use cancellable::pthread_testcancel as test_cancel;

/// True if the kernel would restart a read: all handlers have `SA_RESTART`. Fault handlers do not
/// count: a waiting thread has no faults. `poll` never restarts, and the signal is unknown.
fn signals_restart() -> bool {
    const FAULTS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)).all(|signal| {
        // SAFETY: Zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `action` is writable.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
        let is_handled =
            known && action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

unsafe fn flags_of(descriptor: c_int) -> Result<OFlags> {
    if descriptor < 0 {
        return Err(Errno::plain(libc::EBADF)); // nothing to borrow
    }
    let flags = fcntl_getfl(BorrowedFd::borrow_raw(descriptor));
    flags.map_err(|error| Errno::plain(error.raw_os_error()))
}

pub(crate) unsafe fn is_blocking(descriptor: c_int) -> bool {
    flags_of(descriptor).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// `EINTR` unless restarted.
pub(crate) fn interrupted() -> Result<()> {
    if signals_restart() { Ok(()) } else { Err(Errno::plain(libc::EINTR)) }
}

/// Waits like a read: `EAGAIN` if non-blocking, `EINTR` after a handler without `SA_RESTART`.
/// Cancellation point.
pub(crate) unsafe fn wait_readable(descriptor: c_int) -> Result<()> {
    if flags_of(descriptor)?.contains(OFlags::NONBLOCK) {
        return Err(Errno::plain(libc::EAGAIN));
    }
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN as c_short, revents: 0 };
    let done = poll_once(&raw mut wanted, 1, -1);
    match *libc::__errno_location() {
        _ if done != -1 => Ok(()),
        libc::EINTR => interrupted(),
        errno => Err(Errno::plain(errno)),
    }
}

/// Like `poll`, but 0 after a handler with `SA_RESTART`. Cancellation point.
pub(crate) unsafe extern "C-unwind" fn wait_for(
    descriptors: *mut libc::pollfd,
    number: c_ulong,
    timeout: c_int,
) -> c_int {
    let done = poll_once(descriptors, number, timeout);
    let restarts = done == -1 && *libc::__errno_location() == libc::EINTR && signals_restart();
    if restarts { 0 } else { done }
}

/// Like [`wait_readable`] under checks; reports once if `endless` explains the wait. Cancellation
/// point.
pub(crate) unsafe fn wait_checked(
    descriptor: c_int,
    endless: impl Fn() -> Option<String>,
) -> Result<()> {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut is_reported = false;
    loop {
        let began = Instant::now();
        let done = wait_for(&raw mut wanted, 1, waits::SUSPICION.as_millis() as c_int);
        // ends early on a signal
        if done != 0 || began.elapsed() < waits::SUSPICION {
            let error = Errno::last();
            waits::left();
            return if done < 0 { Err(Errno::plain(error.number())) } else { Ok(()) };
        }
        waits::check_endless(&endless, &mut is_reported);
    }
}

/// Rounds up, for `poll`; -1: none.
pub(crate) fn milliseconds(time: Option<Duration>) -> c_int {
    time.map_or(-1, |time| {
        let rounded = time.as_micros().div_ceil(1000);
        c_int::try_from(rounded).unwrap_or(c_int::MAX)
    })
}
