//! `ibv_start_poll` to `ibv_end_poll`, `ibv_wr_start` to `ibv_wr_complete`: one thread at a time.

use std::cell::UnsafeCell;

use roce_provider::calls::Call;

use crate::{
    hooks::check::{self, Finding, Kind, Stack, python},
    sync::{Condvar, Mutex},
};

pub(crate) struct Batch<T> {
    /// Owner, 0: none. `None`: promised to one thread.
    taken: Option<(Mutex<usize>, Condvar)>,
    state: UnsafeCell<T>,
}

impl<T> Batch<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { taken: Some(Default::default()), state: UnsafeCell::new(state) }
    }

    pub(crate) fn single_threaded(state: T) -> Self {
        Self { taken: None, state: UnsafeCell::new(state) }
    }

    /// Waits for another thread's batch; forever for its own.
    pub(crate) fn begin(&self, call: &str) {
        let Some((taken, ended)) = &self.taken else { return };
        let this = this_thread();
        let mut by = taken.lock();
        if *by == this && check::is_on() {
            drop(by);
            report(
                Kind::BatchNotEnded,
                format!("{call}: this thread has not ended its earlier batch"),
            );
            by = taken.lock();
        }
        *ended.wait_while(by, |by| *by != 0) = this;
    }

    /// Reports a call outside a batch.
    #[cold]
    pub(crate) fn expect_begun(&self, call: &str) {
        let Some((taken, _)) = &self.taken else { return };
        if *taken.lock() == 0 {
            report(Kind::OutsideBatch, format!("{call}: no batch has begun"));
        }
    }

    pub(crate) fn end(&self) {
        let Some((taken, ended)) = &self.taken else { return };
        *taken.lock() = 0;
        ended.notify_one();
    }

    /// The state, for the owner.
    pub(crate) const fn state(&self) -> *mut T {
        self.state.get()
    }
}

fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

#[cold]
fn report(kind: Kind, what: String) {
    let _lines = python::enter(None);
    let _call = Call::begin();
    check::emit(&Finding { kind, what, stacks: vec![("called", Stack::here())] });
}
