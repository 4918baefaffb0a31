//! Thread cancellation (`pthread_cancel`). The C library ends a thread inside cancellation points,
//! `close` and `write` among them, and would unwind frames that hold locks.
//!
//! C calls therefore disable cancellation, except in their waits. Data calls have no cancellation
//! points and pay nothing: they use raw system calls. Their rare other work disables it.

#![allow(unsafe_code, reason = "pthread_setcancelstate has no safe interface")]

use std::{ffi::c_int, marker::PhantomData};

/// Disables cancellation of this thread while alive; nesting has no effect.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
    of_this_thread: PhantomData<*const ()>,
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
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

    /// True if cancellation is disabled.
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
