//! Atomics between program threads and the background thread; `models/` checks them.

use std::sync::atomic::Ordering;

use super::atomics::{AtomicBool, AtomicU32, AtomicU64};

#[derive(Default)]
pub(super) struct Calls {
    /// Calls that served.
    pub(super) activity: AtomicU64,
    /// Polls that found completions, without service.
    pub(super) finds: AtomicU64,
    /// Other calls.
    pub(super) commands: AtomicU64,
}

impl Calls {
    pub(super) fn polls(&self) -> u64 {
        self.activity.load(Ordering::Relaxed).wrapping_add(self.finds.load(Ordering::Relaxed))
    }

    /// Counts to which the background thread may leave the adapter.
    pub(super) fn served(&self) -> [u64; 2] {
        [&self.activity, &self.commands].map(|count| count.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
pub(super) struct Waits {
    /// Threads that wait on the sockets.
    pub(super) socket_waiters: AtomicU32,
    /// The background thread leaves the sockets to those threads, until woken.
    pub(super) background_yields: AtomicBool,
    /// Descriptors on which threads sleep.
    pub(super) sleepers: AtomicU32,
    /// A thread may sleep on a descriptor that only the background thread makes readable.
    pub(super) handed_over: AtomicBool,
    /// Start of the latest serving wait, in clock ns.
    pub(super) waited_at: AtomicU64,
}

#[derive(Default)]
pub(super) struct Background {
    /// End of the sleep in clock ns; 0: awake or about to check.
    pub(super) sleeps_until: AtomicU64,
    /// Times that the thread found work.
    pub(super) found: AtomicU64,
    pub(super) stop: AtomicBool,
}
