//! Batches: what a program does between two calls, `ibv_start_poll` and `ibv_end_poll` or
//! `ibv_wr_start` and `ibv_wr_complete`, for one thread at a time.

use std::cell::UnsafeCell;

use roce_provider::calls::Call;

use crate::{
    hooks::check::{self, Finding, Kind, Stack},
    sync::{Condvar, Mutex},
};

/// State of a batch.
pub(crate) struct Batch<T> {
    /// The thread that has the batch, 0 for none; `None` if the program has promised that there is
    /// only one thread.
    taken: Option<(Mutex<usize>, Condvar)>,
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

    /// Waits for the batch of another thread, and begins one. It waits for ever if this thread has
    /// one.
    pub(crate) fn begin(&self, call: &str) {
        let Some((taken, ended)) = &self.taken else { return };
        let this = this_thread();
        let mut by = taken.lock();
        if *by == this && check::is_on() {
            drop(by);
            tell(call);
            by = taken.lock();
        }
        *ended.wait_while(by, |by| *by != 0) = this;
    }

    pub(crate) fn end(&self) {
        let Some((taken, ended)) = &self.taken else { return };
        *taken.lock() = 0;
        ended.notify_one();
    }

    /// The state, for the thread that has begun the batch.
    pub(crate) const fn state(&self) -> *mut T {
        self.state.get()
    }
}

/// A number that no other thread has.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

#[cold]
fn tell(call: &str) {
    let _call = Call::begin();
    check::tell(&Finding {
        kind: Kind::BatchNotEnded,
        what: format!("{call}: this thread has begun a batch, and not ended it"),
        stacks: vec![("called", Stack::here())],
    });
}
