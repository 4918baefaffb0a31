//! Time in a model: it goes on with each look at the clock, and with each sleep that ends by
//! itself.

use std::{cell::Cell, time::Duration};

use roce_transport::time::Instant;

/// Time between two looks: longer than a thread goes on looking for packets, so that it does so
/// once.
const STEP: Duration = Duration::from_micros(60);

thread_local! {
    // loom runs all threads of a model on the thread of the test
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
