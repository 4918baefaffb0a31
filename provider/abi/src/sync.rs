//! Locks without poisoning: a panic under a lock is a bug of this library; the state behind it stays
//! usable. `provider/src/sync.rs` says why they are the standard library's.

use std::sync::{self, MutexGuard, PoisonError};

pub(crate) use roce_provider::sync::Mutex;

/// A condition of what such a mutex guards.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits as long as `condition` holds.
    pub(crate) fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }
}
