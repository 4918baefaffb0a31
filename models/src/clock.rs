//! A model's time: advances with each read of the clock and each sleep that ends by itself.

use std::{cell::Cell, time::Duration};

use roce_transport::time::Instant;

/// Time per read: longer than a thread spins for packets, so that it spins once.
const STEP: Duration = Duration::from_micros(60);

thread_local! {
    // loom runs a model's threads on the test's thread
    static NOW: Cell<Instant> = const { Cell::new(Instant::ZERO) };
}

pub(crate) fn begin() {
    NOW.set(Instant::ZERO);
}

pub(crate) fn now() -> Instant {
    pass(STEP);
    NOW.get()
}

pub(crate) fn pass(time: Duration) {
    NOW.set(NOW.get().plus(time));
}
