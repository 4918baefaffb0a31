//! Locks without poisoning; `provider/src/sync.rs` says why.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use roce_provider::calls;
pub(crate) use roce_provider::sync::Mutex;
use rustix::{event::Timespec, thread::futex};

/// Threads await changes without locks and outside [calls](calls): other threads can fork.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: AtomicU32,
    /// Waiting threads. One that starts after `announce` has read this sees `count` changed.
    waiting: AtomicU32,
}

impl Changes {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Call after each change.
    pub(crate) fn announce(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.count, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
        }
    }

    /// Retries `attempt` after each change.
    pub(crate) fn wait_for<R>(&self, attempt: impl Fn() -> Option<R>) -> R {
        loop {
            let seen = self.count.load(Ordering::SeqCst);
            if let Some(result) = attempt() {
                return result;
            }
            self.pause(seen, None);
        }
    }

    /// Gives up after `limit`.
    pub(crate) fn wait_within<R>(
        &self,
        limit: Duration,
        attempt: impl Fn() -> Option<R>,
    ) -> Option<R> {
        let start = Instant::now();
        loop {
            let seen = self.count.load(Ordering::SeqCst);
            if let Some(result) = attempt() {
                return Some(result);
            }
            let left = limit.checked_sub(start.elapsed())?;
            self.pause(seen, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// Waits for a change; may return early.
    fn pause(&self, seen: u32, limit: Option<&Timespec>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        calls::pause(|| {
            let _ = futex::wait(&self.count, futex::Flags::PRIVATE, seen, limit);
        });
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
