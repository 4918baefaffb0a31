//! Cancellation of threads (`pthread_cancel`). The C library ends a thread in the middle of a call
//! that may wait (`close` and `write` among them). It unwinds the stack through frames that hold
//! locks and must not be unwound.
//!
//! So a call of the C interface runs with cancellation disabled, but for its waits. Calls that move
//! data make none at which a thread could be cancelled, and pay nothing: sockets, rings and
//! descriptors are used by system calls without the C library. What they do besides, now and then,
//! is done with cancellation disabled.

#![allow(unsafe_code, reason = "pthread_setcancelstate has no safe interface")]

use std::{ffi::c_int, marker::PhantomData};

/// As long as it lives, this thread is not cancelled; inside another one it has no effect.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
    of_this_thread: PhantomData<*const ()>,
}

/// `PTHREAD_CANCEL_DISABLE`, the same in glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    /// Disables cancellation.
    #[must_use]
    pub fn begin() -> Self {
        let mut before = DISABLE;
        // SAFETY: The state is one of the two, and what it was goes to a place of ours.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before, of_this_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: The state that was before. A thread that is cancelled meanwhile ends at its next
        // call that waits: only one that wants to be ended anywhere would end here, and such a
        // thread may call nothing of ours.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if cancellation is disabled. The state does not change.
    fn is_disabled() -> bool {
        Uncancelled::begin().before == DISABLE
    }

    #[test]
    fn the_outermost_counts() {
        assert!(!is_disabled());
        let outer = Uncancelled::begin();
        drop(Uncancelled::begin());
        assert!(is_disabled());
        drop(outer);
        assert!(!is_disabled());
    }
}
