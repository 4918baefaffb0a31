//! Batches: what a program does between two calls, `ibv_start_poll` and `ibv_end_poll` or
//! `ibv_wr_start` and `ibv_wr_complete`, for one thread at a time.

use std::cell::UnsafeCell;

use crate::sync::{Condvar, Mutex};

/// State of a batch.
pub(crate) struct Batch<T> {
    /// True while a thread has the batch; `None` if the program has promised that there is only one
    /// thread.
    taken: Option<(Mutex<bool>, Condvar)>,
    state: UnsafeCell<T>,
}

impl<T> Batch<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { taken: Some(Default::default()), state: UnsafeCell::new(state) }
    }

    /// One for a single thread.
    pub(crate) fn single_threaded(state: T) -> Self {
        Self { taken: None, state: UnsafeCell::new(state) }
    }

    /// Waits for the batch of another thread, and begins one.
    pub(crate) fn begin(&self) {
        let Some((taken, ended)) = &self.taken else { return };
        *ended.wait_while(taken.lock(), |taken| *taken) = true;
    }

    pub(crate) fn end(&self) {
        let Some((taken, ended)) = &self.taken else { return };
        *taken.lock() = false;
        ended.notify_one();
    }

    /// The state, for the thread that has begun the batch.
    pub(crate) const fn state(&self) -> *mut T {
        self.state.get()
    }
}
