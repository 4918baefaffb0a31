//! `ibv_start_poll` to `ibv_end_poll`, `ibv_wr_start` to `ibv_wr_complete`: one thread at a time.

use std::{
    cell::UnsafeCell,
    sync::{Arc, Condvar, PoisonError},
};

use roce_provider::calls::Call;

use crate::{
    hooks::check::{
        self, Finding, Kind, Stack, python,
        waits::{self, ForBatch, Started},
    },
    sync::Mutex,
};

pub(crate) struct Batch<T> {
    /// Owner, 0: none. `None`: promised to one thread.
    taken: Option<(Mutex<usize>, Condvar)>,
    /// Under checks.
    started: Option<Started>,
    state: UnsafeCell<T>,
}

impl<T> Batch<T> {
    pub(crate) fn new(state: T) -> Self {
        let started = check::is_on().then(|| Arc::new(Mutex::new(Stack::none())));
        Self { taken: Some(Default::default()), started, state: UnsafeCell::new(state) }
    }

    pub(crate) fn single_threaded(state: T) -> Self {
        Self { taken: None, started: None, state: UnsafeCell::new(state) }
    }

    /// Waits for another thread's batch; forever for its own.
    pub(crate) fn begin(&self, call: &str) {
        let Some((taken, ended)) = &self.taken else { return };
        let this = this_thread();
        let mut by = taken.lock();
        let mut wait = None;
        if let Some(started) = &self.started
            && *by != 0
        {
            let is_own = *by == this;
            drop(by);
            wait = not_ended(call, is_own, started);
            by = taken.lock();
        }
        let free = ended.wait_while(by, |by| *by != 0);
        *free.unwrap_or_else(PoisonError::into_inner) = this;
        drop(wait);
        self.started.iter().for_each(start);
    }

    /// Under checks, reports a call outside this thread's batch.
    pub(crate) fn expect_begun(&self, call: &str) {
        let (Some((taken, _)), Some(started)) = (&self.taken, &self.started) else { return };
        let by = *taken.lock();
        if by != this_thread() {
            report_outside(call, (by != 0).then_some(started));
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
fn start(started: &Started) {
    let _call = Call::begin();
    *started.lock() = Stack::here();
}

/// Reports a thread's own batch at once, another thread's if nobody ends it.
#[cold]
fn not_ended(call: &str, is_own: bool, started: &Started) -> Option<ForBatch> {
    let by = if is_own { "this thread" } else { "another thread" };
    let what = format!("{call}: {by} has not ended its earlier batch");
    let _lines = python::enter(None);
    let _call = Call::begin();
    let mut finding = Finding::here(Kind::BatchNotEnded, "called", what, None);
    if !is_own {
        return Some(waits::for_batch(finding, started.clone()));
    }
    finding.stacks.push(("started", started.lock().clone()));
    check::emit(&finding);
    None
}

/// `other`: another thread's batch.
#[cold]
fn report_outside(call: &str, other: Option<&Started>) {
    let _lines = python::enter(None);
    let _call = Call::begin();
    let what = match other {
        None => format!("{call}: no batch has begun"),
        Some(_) => format!("{call}: the batch is another thread's"),
    };
    let started = other.map(|started| ("started", started.lock().clone()));
    check::emit(&Finding::here(Kind::OutsideBatch, "called", what, started));
}
