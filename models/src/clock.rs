//! A model's time, advanced by clock reads and by sleeps that end by themselves. Simulated threads
//! have their machine's.

use std::{cell::Cell, time::Duration};

use roce_transport::time::Instant;

use crate::engine::simulator::machine;

/// Per read: longer than a thread spins for packets, which makes it spin once.
const STEP: Duration = Duration::from_micros(60);

thread_local! {
    // loom runs a model's threads on the test's thread
    static NOW: Cell<Instant> = const { Cell::new(Instant::ZERO) };
}

pub(crate) fn begin() {
    NOW.set(Instant::ZERO);
}

pub(crate) fn now() -> Instant {
    machine::read_clock().unwrap_or_else(|| {
        pass(STEP);
        NOW.get()
    })
}

pub(crate) fn pass(time: Duration) {
    NOW.set(NOW.get().plus(time));
}
