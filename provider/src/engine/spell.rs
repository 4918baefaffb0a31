//! Times that become longer while their reason lasts.

use std::time::Duration;

use roce_transport::time::Instant;

/// A time that is twice as long each time that its reason is found again, until that has not been found
/// for a number of looks.
#[derive(Debug, Default)]
pub(super) struct Spell {
    until: Instant,
    length: Duration,
    /// Looks since that have not found it.
    without: u32,
}

impl Spell {
    pub(super) fn lasts(&self, now: Instant) -> bool {
        now < self.until
    }

    pub(super) fn end(&self) -> Instant {
        self.until
    }

    /// True if it is over, and its length is not forgotten yet.
    pub(super) fn is_remembered(&self, now: Instant) -> bool {
        !self.length.is_zero() && !self.lasts(now)
    }

    /// The reason was found.
    pub(super) fn renew(&mut self, [least, most]: [Duration; 2], now: Instant) {
        self.length = (self.length * 2).clamp(least, most);
        self.until = now.plus(self.length);
        self.without = 0;
    }

    /// It has ended before its time.
    pub(super) fn end_now(&mut self, now: Instant) {
        self.until = self.until.min(now);
    }

    /// It was not; after so many looks its length is forgotten.
    pub(super) fn miss(&mut self, looks: u32) {
        self.without = self.without.saturating_add(1);
        if self.without == looks {
            self.length = Duration::ZERO;
        }
    }
}
