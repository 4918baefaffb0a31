//! Yields, which let loom choose another thread.

pub(super) use std::hint;

/// A short sleep ends at any time.
pub(super) mod thread {
    pub(in super::super) use loom::thread::yield_now;

    pub(in super::super) fn sleep(time: std::time::Duration) {
        crate::clock::pass(time);
        yield_now();
    }
}
