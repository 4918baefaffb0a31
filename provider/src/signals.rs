//! Library threads block signals: handlers run, and interrupt calls, on program threads only.

#![allow(unsafe_code, reason = "signal masks")]

use std::{mem, ptr};

use rustix::io::Errno;

/// Left unblocked.
const FAULTS: [libc::c_int; 7] = [
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
    // SAFETY: all zero is an empty set
    let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: initialised sets, borrowed for the calls
    let result = unsafe {
        libc::sigfillset(&mut set);
        for signal in FAULTS {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before)
    };
    let started = start();
    if result == 0 {
        // SAFETY: as above
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    }
    started
}

pub(crate) fn without_sigpipe<T: PartialEq>(
    write: impl FnOnce() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    // SAFETY: all zero is an empty set
    let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
    // SAFETY: initialised sets, borrowed for the calls
    let (was_pending, blocked) = unsafe {
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        (was_pending, libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before) == 0)
    };
    if !blocked {
        return Err(Errno::INVAL);
    }
    let result = write();
    // SAFETY: as above; consumes the write's SIGPIPE, and restores the mask
    unsafe {
        if result == Err(Errno::PIPE) && !was_pending {
            let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, ptr::null_mut(), &none);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
    result
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
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
