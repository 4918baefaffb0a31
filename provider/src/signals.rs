//! Library threads block signals: handlers run, and interrupt calls, on program threads only.

#![allow(unsafe_code, reason = "signal masks")]

use std::{ffi::c_int, mem, ptr};

use rustix::io::Errno;

/// Left unblocked.
const FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Runs `start` with signals blocked, which its threads inherit.
pub fn blocked<R>(start: impl FnOnce() -> R) -> R {
    let mut set = set_of([]);
    // SAFETY: an initialised set
    unsafe {
        libc::sigfillset(&mut set);
        for signal in FAULTS {
            libc::sigdelset(&mut set, signal);
        }
    }
    let before = change_mask(libc::SIG_BLOCK, &set);
    let started = start();
    if let Some(before) = before {
        change_mask(libc::SIG_SETMASK, &before);
    }
    started
}

pub(crate) fn set_of(signals: impl IntoIterator<Item = c_int>) -> libc::sigset_t {
    // SAFETY: all zero is an empty set
    let mut set = unsafe { mem::zeroed() };
    for signal in signals {
        // SAFETY: the set is initialised
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

pub(crate) fn contains(set: &libc::sigset_t, signal: c_int) -> bool {
    // SAFETY: an initialised set
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Changes this thread's mask, and returns the former.
pub(crate) fn change_mask(how: c_int, set: &libc::sigset_t) -> Option<libc::sigset_t> {
    let mut before = set_of([]);
    // SAFETY: initialised sets, borrowed for the call
    let result = unsafe { libc::pthread_sigmask(how, set, &mut before) };
    (result == 0).then_some(before)
}

pub(crate) fn without_sigpipe<T: PartialEq>(
    write: impl FnOnce() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let (pipe, mut pending) = (set_of([libc::SIGPIPE]), set_of([]));
    // SAFETY: an initialised set
    unsafe { libc::sigpending(&mut pending) };
    let before = change_mask(libc::SIG_BLOCK, &pipe).ok_or(Errno::INVAL)?;
    let result = write();
    if result == Err(Errno::PIPE) && !contains(&pending, libc::SIGPIPE) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: an initialised set; consumes the write's SIGPIPE
        unsafe { libc::sigtimedwait(&pipe, ptr::null_mut(), &none) };
    }
    change_mask(libc::SIG_SETMASK, &before);
    result
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn is_blocked(signal: c_int) -> bool {
        // SAFETY: all zero is an empty set; the mask is only read
        unsafe {
            let mut mask = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut mask);
            libc::sigismember(&mask, signal) == 1
        }
    }

    #[test]
    fn only_the_thread_that_is_started() {
        let inside = || [libc::SIGALRM, libc::SIGINT, libc::SIGSEGV, libc::SIGBUS].map(is_blocked);
        assert_eq!(blocked(|| thread::spawn(inside)).join().unwrap(), [true, true, false, false]);
        assert_eq!(inside(), [false; 4]);
    }
}
