//! When the counters of a shard are published.

use std::time::Duration;

use roce_transport::time::Instant;

/// Least time between two publications.
pub(super) const PUBLISH: Duration = Duration::from_secs(1);

/// The counters to be published, and the time of that.
#[derive(Default)]
pub(super) struct Publication {
    /// Something may have been counted since the last time.
    pub(super) counted: bool,
    /// Earliest time of the next; `None`: nothing is published.
    not_before: Option<Instant>,
    /// The background thread knows the time.
    is_known: bool,
}

impl Publication {
    /// Publishes from this time on.
    pub(super) const fn start(&mut self, at: Instant) {
        self.not_before = Some(at);
    }

    pub(super) const fn stop(&mut self) {
        self.not_before = None;
    }

    /// Time at which the counters are to be published.
    pub(super) fn due(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.counted)
    }

    /// True if they are, and will not be for the next second.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.due().is_some_and(|due| due <= now);
        if begins {
            *self = Self { counted: false, not_before: Some(now.plus(PUBLISH)), is_known: false };
        }
        begins
    }

    /// True if the background thread has to be woken for it, once.
    pub(super) fn wakes(&self) -> bool {
        !self.is_known && self.due().is_some()
    }

    /// The background thread has seen the time, or is woken for it.
    pub(super) fn know(&mut self) {
        self.is_known = self.due().is_some();
    }
}
