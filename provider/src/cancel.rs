//! Thread cancellation (`pthread_cancel`). At a cancellation point, such as `close` or `write`, the
//! C library would unwind frames that hold locks.
//!
//! C calls disable cancellation, except while they wait. Data calls have no cancellation points:
//! they use raw system calls, and disable cancellation for rare other work.

#![allow(unsafe_code, reason = "pthread_setcancelstate has no safe interface")]

use std::{ffi::c_int, marker::PhantomData};

/// Disables this thread's cancellation while alive; may be nested.
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
        // SAFETY: `DISABLE` is a valid state; `before` is a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before, of_this_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: Restores the previous state. A thread with deferred cancellation ends at its next
        // cancellation point. A thread with asynchronous cancellation may not call this library.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
