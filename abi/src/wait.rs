//! Waiting for descriptors.

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

/// Makes a descriptor blocking, as programs expect until they set it to non-blocking.
pub(crate) fn blocking(descriptor: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(descriptor)?;
    Ok(fcntl_setfl(descriptor, flags - OFlags::NONBLOCK)?)
}

/// What a call that waits for events finds when it looks. Nothing of it needs to be dropped.
#[derive(Clone, Copy)]
pub(crate) enum Look<T: Copy> {
    Event(T),
    /// None yet: the descriptor to wait on.
    Nothing(c_int),
}

impl<T: Copy> Look<T> {
    /// From an event, if there is one, and the descriptor.
    pub(crate) fn of(event: Option<T>, descriptor: c_int) -> Self {
        event.map_or(Self::Nothing(descriptor), Self::Event)
    }
}

/// Calls during which the thread may be cancelled: they unwind through the callers.
mod cancellable {
    unsafe extern "C-unwind" {
        pub(super) safe fn pthread_testcancel();
        pub(super) fn poll(
            fds: *mut libc::pollfd,
            number: super::c_ulong,
            timeout: super::c_int,
        ) -> super::c_int;
    }
}

/// True if a read that a signal has interrupted would be restarted: the handler has `SA_RESTART`.
/// `poll` itself is never restarted. The number of the signal is not known, so all handlers are
/// looked at, but for those of faults, which do not happen in a thread that waits.
fn signals_restart() -> bool {
    const FAULTS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)).all(|signal| {
        // SAFETY: All bytes zero are a value of it.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: The call changes no handler, and writes to a place of ours.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
        let is_handled =
            known && action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// A descriptor of the program's, unless it cannot be one.
unsafe fn borrow<'a>(descriptor: c_int) -> Option<BorrowedFd<'a>> {
    (descriptor >= 0).then(|| BorrowedFd::borrow_raw(descriptor))
}

unsafe fn flags_of(descriptor: c_int) -> Result<OFlags> {
    let descriptor = borrow(descriptor).ok_or(Errno::told(libc::EBADF))?;
    fcntl_getfl(descriptor).map_err(|error| Errno::told(error.raw_os_error()))
}

/// True if a read from the descriptor would wait.
pub(crate) unsafe fn is_blocking(descriptor: c_int) -> bool {
    flags_of(descriptor).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// Result of a wait that a signal has ended: `EINTR` unless it would be restarted.
pub(crate) fn interrupted() -> Result<()> {
    if signals_restart() { Ok(()) } else { Err(Errno::told(libc::EINTR)) }
}

/// Ends a thread that is cancelled. A program that never has to wait has no other place where that
/// could happen.
///
/// A cancellation point: nothing may need to be dropped in its callers.
pub(crate) extern "C-unwind" fn may_end_here() {
    cancellable::pthread_testcancel();
}

/// Waits until a descriptor is readable, as reading from it would: `EAGAIN` if it is non-blocking,
/// `EINTR` after a signal whose handler does not restart calls.
///
/// A cancellation point: nothing may need to be dropped in its callers.
pub(crate) unsafe fn wait_readable(descriptor: c_int) -> Result<()> {
    if flags_of(descriptor)?.contains(OFlags::NONBLOCK) {
        return Err(Errno::told(libc::EAGAIN));
    }
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN as c_short, revents: 0 };
    let done = cancellable::poll(&raw mut wanted, 1, -1);
    match *libc::__errno_location() {
        _ if done != -1 => Ok(()),
        libc::EINTR => interrupted(),
        errno => Err(Errno::told(errno)),
    }
}

/// Waits until one of the descriptors is ready, at most so many milliseconds: their number, or 0,
/// also after a signal whose handler restarts calls, or -1.
///
/// A cancellation point: nothing may need to be dropped in its callers.
pub(crate) unsafe extern "C-unwind" fn wait_for(
    descriptors: *mut libc::pollfd,
    number: c_ulong,
    timeout: c_int,
) -> c_int {
    let done = cancellable::poll(descriptors, number, timeout);
    let restarts = done == -1 && *libc::__errno_location() == libc::EINTR && signals_restart();
    if restarts { 0 } else { done }
}

/// The same, which every signal ends.
///
/// A cancellation point: nothing may need to be dropped in its callers.
pub(crate) unsafe extern "C-unwind" fn poll_once(
    descriptors: *mut libc::pollfd,
    number: c_ulong,
    timeout: c_int,
) -> c_int {
    cancellable::poll(descriptors, number, timeout)
}

/// Waits until a descriptor may be readable, as [`wait_readable`], for a program that is checked.
/// From time to time `endless` is asked why that cannot be, which is told once.
///
/// A cancellation point: nothing may need to be dropped in its callers.
pub(crate) unsafe fn wait_checked(
    descriptor: c_int,
    endless: impl Fn() -> Option<String>,
) -> Result<()> {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut is_told = false;
    loop {
        let began = Instant::now();
        let done = wait_for(&raw mut wanted, 1, waits::SOON.as_millis() as c_int);
        // a signal may have ended it before
        if done != 0 || began.elapsed() < waits::SOON {
            let error = Errno::last();
            waits::left();
            return if done < 0 { Err(Errno::told(error.number())) } else { Ok(()) };
        }
        waits::look(&endless, &mut is_told);
    }
}

/// A time as `poll` has it, in whole milliseconds and no less; -1 for ever.
pub(crate) fn milliseconds(time: Option<Duration>) -> c_int {
    time.map_or(-1, |time| {
        let rounded = time.as_micros().div_ceil(1000);
        c_int::try_from(rounded).unwrap_or(c_int::MAX)
    })
}
