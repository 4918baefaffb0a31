//! A watched polling thread that always has the processor.

use std::time::Duration;

use roce_transport::time::Instant;

use crate::clock;

pub(super) struct Poller;

pub(super) const fn count_poll(_: bool) {}

pub(super) struct Watched(Instant);

impl Poller {
    pub(super) fn record_poll(&self) {}

    pub(super) fn sleeps(&self) -> bool {
        true
    }

    pub(super) fn watch(&self) -> Option<Watched> {
        Some(Watched(clock::now()))
    }
}

impl Watched {
    pub(super) fn since(&self, now: Instant) -> Duration {
        now.since(self.0)
    }

    pub(super) fn lacks_processor(&self) -> bool {
        false
    }
}
