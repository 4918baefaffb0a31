//! Signals are the program's. A thread of ours takes none: else a handler would run where its
//! program does not expect it, or a call that the program wants to be interrupted would go on.

#![allow(unsafe_code, reason = "signal masks")]

use std::{mem, ptr};

/// Signals of a thread's own faults. They stay as they are.
const FAULTS: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Runs `start` with signals blocked on this thread; threads that it starts keep them blocked.
pub fn blocked<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: all zero is an empty set
    let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: the sets are initialised and borrowed for the calls, which change this thread's mask
    // only
    let result = unsafe {
        libc::sigfillset(&mut set);
        for signal in FAULTS {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before)
    };
    let started = start();
    if result == 0 {
        // SAFETY: as above; back to what it was
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    }
    started
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        // SAFETY: all zero is an empty set, and the mask is only asked for
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
