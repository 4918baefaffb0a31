//! Polling thread, whose processor time is that of the simulation.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use roce_transport::time::Instant;

use super::{machine, schedule::spin::PollYields};
use crate::clock;

thread_local! {
    static YIELDS: Cell<PollYields> = const { Cell::new(PollYields::new()) };
}

/// One more than the thread of the latest poll; 0: none.
#[derive(Default)]
pub(super) struct Poller(AtomicUsize);

pub(super) fn count_poll(received: bool) {
    let mut yields = YIELDS.get();
    if yields.count_poll(received) {
        let start = clock::now();
        machine::yield_now();
        yields.record_yield(clock::now().since(start));
    }
    YIELDS.set(yields);
}

pub(super) struct Watched {
    thread: usize,
    at: Instant,
    run: Duration,
}

impl Poller {
    fn thread(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn record_poll(&self) {
        self.0.store(machine::me().map_or(0, |me| me + 1), Ordering::Relaxed);
    }

    pub(super) fn sleeps(&self) -> bool {
        !self.thread().is_some_and(is_ready)
    }

    pub(super) fn watch(&self) -> Option<Watched> {
        let thread = self.thread()?;
        Some(Watched { thread, at: clock::now(), run: run_time(thread) })
    }
}

impl Watched {
    pub(super) fn since(&self, now: Instant) -> Duration {
        now.since(self.at)
    }

    pub(super) fn lacks_processor(&self) -> bool {
        let passed = clock::now().since(self.at);
        run_time(self.thread) - self.run < passed / 2 && is_ready(self.thread)
    }
}

fn run_time(thread: usize) -> Duration {
    machine::spend(|costs| costs.call);
    machine::run_time(thread)
}

/// Reads a file of the system.
fn is_ready(thread: usize) -> bool {
    machine::spend(|costs| 10 * costs.call);
    machine::is_ready(thread)
}
