//! Publication times of a shard's counters.

use std::time::Duration;

use roce_transport::time::Instant;

/// Minimum interval of publications.
pub(super) const PUBLISH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Publication {
    /// A counter may have changed since the latest.
    pub(super) counted: bool,
    /// Earliest next publication; `None`: off.
    not_before: Option<Instant>,
    /// The background thread knows the time.
    is_known: bool,
}

impl Publication {
    /// Starts publication at this time.
    pub(super) const fn start(&mut self, at: Instant) {
        self.not_before = Some(at);
    }

    pub(super) const fn stop(&mut self) {
        self.not_before = None;
    }

    /// Returns the time of the next publication.
    pub(super) fn due(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.counted)
    }

    /// True if due now; then not for the next second.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.due().is_some_and(|due| due <= now);
        if begins {
            *self = Self { counted: false, not_before: Some(now.plus(PUBLISH)), is_known: false };
        }
        begins
    }

    /// True if the background thread must be woken for it, once.
    pub(super) fn wakes(&self) -> bool {
        !self.is_known && self.due().is_some()
    }

    /// Records that the background thread knows the time, or is woken.
    pub(super) fn know(&mut self) {
        self.is_known = self.due().is_some();
    }
}
