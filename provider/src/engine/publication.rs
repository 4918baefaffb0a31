use std::time::Duration;

use roce_transport::time::Instant;

/// Minimum interval of publications.
pub(super) const PUBLISH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Publication {
    /// A counter may have changed.
    pub(super) counted: bool,
    /// Earliest next publication; `None`: off.
    not_before: Option<Instant>,
    /// The background thread knows the time.
    is_known: bool,
}

impl Publication {
    pub(super) const fn start(&mut self, at: Instant) {
        self.not_before = Some(at);
    }

    pub(super) const fn stop(&mut self) {
        self.not_before = None;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.counted)
    }

    /// True if due; the next is a second later.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.due().is_some_and(|due| due <= now);
        if begins {
            *self = Self { counted: false, not_before: Some(now.plus(PUBLISH)), is_known: false };
        }
        begins
    }

    /// True if the background thread must be woken, once.
    pub(super) fn wakes(&self) -> bool {
        !self.is_known && self.due().is_some()
    }

    /// The background thread knows the time, or is woken.
    pub(super) fn know(&mut self) {
        self.is_known = self.due().is_some();
    }
}
