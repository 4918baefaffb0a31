//! Signals are for the program's threads, not for ours.

#![allow(unsafe_code, reason = "there is no safe interface to pthread_sigmask")]

use std::mem::MaybeUninit;

/// Runs `start`, which starts a thread, with every signal blocked: the new thread inherits that. Those that a thread's own faults
/// raise stay, because blocking them would not make the faults go away.
pub(super) fn blocked<R>(start: impl FnOnce() -> R) -> R {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` makes the first set whole before anything else uses it, and `pthread_sigmask` writes the second. Neither
    // can fail with these arguments.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(all.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let result = start();
    // SAFETY: The set came from the same call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}
