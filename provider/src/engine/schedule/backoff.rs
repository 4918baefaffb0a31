//! Exponential backoff.

use std::time::Duration;

use roce_transport::time::Instant;

/// Exponential backoff: a time that doubles with each [renewal](Self::renew), and begins anew after
/// a number of looks that found no reason for it.
#[derive(Debug, Default)]
pub(in crate::engine) struct Backoff {
    until: Instant,
    length: Duration,
    /// Looks since that have not found it.
    without: u32,
}

impl Backoff {
    pub(in crate::engine) fn lasts(&self, now: Instant) -> bool {
        now < self.until
    }

    pub(in crate::engine) fn end(&self) -> Instant {
        self.until
    }

    /// True if it is over, and its length is not forgotten yet.
    pub(in crate::engine) fn is_remembered(&self, now: Instant) -> bool {
        !self.length.is_zero() && !self.lasts(now)
    }

    /// The reason was found.
    pub(in crate::engine) fn renew(&mut self, [least, most]: [Duration; 2], now: Instant) {
        self.length = (self.length * 2).clamp(least, most);
        self.until = now.plus(self.length);
        self.without = 0;
    }

    /// It has ended before its time.
    pub(in crate::engine) fn end_now(&mut self, now: Instant) {
        self.until = self.until.min(now);
    }

    /// It was not; after so many looks its length is forgotten.
    pub(in crate::engine) fn miss(&mut self, looks: u32) {
        self.without = self.without.saturating_add(1);
        if self.without == looks {
            self.length = Duration::ZERO;
        }
    }
}
