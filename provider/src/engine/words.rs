//! Words by which the threads of the program and the background thread tell each other what they
//! do.
//!
//! The models of concurrency (`models/`) run this file.

use std::sync::atomic::Ordering;

use super::atomics::{AtomicBool, AtomicU32, AtomicU64};

/// Numbers of calls of the program.
#[derive(Default)]
pub(super) struct Calls {
    /// Those that served the adapter.
    pub(super) activity: AtomicU64,
    /// Polls that found something, and did not.
    pub(super) finds: AtomicU64,
    /// All others.
    pub(super) commands: AtomicU64,
}

impl Calls {
    /// Number of calls by which the program looks for what has arrived.
    pub(super) fn polls(&self) -> u64 {
        self.activity.load(Ordering::Relaxed).wrapping_add(self.finds.load(Ordering::Relaxed))
    }

    /// Number of calls of either kind that the background thread may leave the adapter to.
    pub(super) fn served(&self) -> [u64; 2] {
        [&self.activity, &self.commands].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Waits of the threads of the program.
#[derive(Default)]
pub(super) struct Waits {
    /// Number of those that wait on the sockets themselves.
    pub(super) drivers: AtomicU32,
    /// True while the background thread leaves the sockets to those until one of them wakes it.
    pub(super) leaves_sockets: AtomicBool,
    /// Number of descriptors on which others sleep.
    pub(super) sleepers: AtomicU32,
    /// True while one may sleep on a descriptor that only the background thread makes readable.
    pub(super) handed_over: AtomicBool,
    /// When one began to serve while it waits, in nanoseconds of the clock.
    pub(super) waited_at: AtomicU64,
}

/// State of the background thread.
#[derive(Default)]
pub(super) struct Background {
    /// End of its sleep in nanoseconds of the clock; 0 while it is awake or about to look.
    pub(super) sleeps_until: AtomicU64,
    /// Number of times that it has found something.
    pub(super) found: AtomicU64,
    /// It is to end.
    pub(super) stop: AtomicBool,
}
