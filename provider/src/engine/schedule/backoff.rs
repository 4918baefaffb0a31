use std::time::Duration;

use roce_transport::time::Instant;

/// Exponential backoff: doubles on [`renew`](Self::renew), resets after a number of misses.
#[derive(Debug, Default)]
pub(in crate::engine) struct Backoff {
    until: Instant,
    length: Duration,
    /// Misses since.
    without: u32,
}

impl Backoff {
    pub(in crate::engine) fn lasts(&self, now: Instant) -> bool {
        now < self.until
    }

    pub(in crate::engine) fn end(&self) -> Instant {
        self.until
    }

    /// True if over with its length kept.
    pub(in crate::engine) fn is_remembered(&self, now: Instant) -> bool {
        !self.length.is_zero() && !self.lasts(now)
    }

    pub(in crate::engine) fn renew(&mut self, [least, most]: [Duration; 2], now: Instant) {
        self.length = (self.length * 2).clamp(least, most);
        self.until = now.plus(self.length);
        self.without = 0;
    }

    pub(in crate::engine) fn end_now(&mut self, now: Instant) {
        self.until = self.until.min(now);
    }

    /// The length resets after `looks` misses.
    pub(in crate::engine) fn miss(&mut self, looks: u32) {
        self.without = self.without.saturating_add(1);
        if self.without == looks {
            self.length = Duration::ZERO;
        }
    }
}
