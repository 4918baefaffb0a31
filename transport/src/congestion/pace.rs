//! Pace of READ responses to a peer that loses them and repeats the request late.
//!
//! Unlike adapters and this crate, rxe drops everything behind a gap until its timer expires,
//! possibly gigabytes. A late repeat halves the rate. Each second adds the halved rate.

use core::time::Duration;

use super::rate::{EPOCH, bits_per_second, spread};
use crate::time::Instant;

/// Silence before a late repeat.
const LATE_AFTER: Duration = Duration::from_millis(10);
/// Response bytes behind a repeat that also make the repeat late.
const LATE_BYTES: u64 = 16 << 20;
/// Smaller bursts are not cut.
const MIN_BURST: u64 = 256 << 10;
/// Maximum at the first cut, in bits/s.
const MAX_INITIAL_RATE: u64 = 10_000_000_000;
/// Minimum, in bits/s.
const MIN_RATE: u64 = 100_000_000;
/// Time to grow by the cut rate.
const GROWTH: Duration = Duration::from_secs(1);
/// Time to lift the limit.
const LIMIT_LIFETIME: Duration = Duration::from_secs(16);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Rate after the last cut, in bits/s; 0: unlimited.
    cut: u64,
    cut_at: Instant,
    next: Instant,
    waits: bool,
    /// Responses since the last pause: start, end, bytes.
    since: Instant,
    last: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn limit(&self) -> Option<u64> {
        (self.cut > 0).then_some(self.cut)
    }

    fn rate(&self, now: Instant) -> u64 {
        let grown = u128::from(self.cut) * now.since(self.cut_at).as_nanos() / GROWTH.as_nanos();
        self.cut.saturating_add(grown as u64)
    }

    /// False until [`deadline`](Self::deadline).
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if self.cut > 0 && now.since(self.cut_at) >= LIMIT_LIFETIME {
            self.cut = 0;
        }
        self.waits = self.cut > 0 && self.next > now;
        !self.waits
    }

    pub(crate) fn on_sent(&mut self, bytes: u64, now: Instant) {
        if now.since(self.last) >= LATE_AFTER {
            (self.since, self.bytes) = (now, 0);
        }
        self.last = now;
        self.bytes += bytes;
        if self.cut > 0 {
            self.next = spread(self.next, bytes, self.rate(now), now);
        }
    }

    /// Handles a repeat with `behind` bytes sent after it.
    pub(crate) fn on_repeat(&mut self, behind: u64, now: Instant) {
        let is_late = now.since(self.last) >= LATE_AFTER || behind >= LATE_BYTES;
        // the next READs repeat too
        let is_first = self.cut == 0 || now.since(self.cut_at) >= LATE_AFTER;
        if !is_late || !is_first || self.bytes < MIN_BURST {
            return;
        }
        let measured = bits_per_second(self.bytes, self.last.since(self.since).max(EPOCH));
        let found = if self.cut > 0 { self.rate(now) } else { MAX_INITIAL_RATE }.min(measured);
        (self.cut, self.cut_at, self.next) = ((found / 2).max(MIN_RATE), now, now);
        self.bytes = 0;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waits.then_some(self.next)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.waits &= self.next > now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Pace after `bytes` within 10 ms.
    fn sent(bytes: u64) -> Pace {
        let mut pace = Pace::default();
        (0..10).for_each(|n| pace.on_sent(bytes / 10, at(100 + n)));
        pace
    }

    #[test]
    fn a_late_repeat_halves_what_was_sent() {
        let mut pace = sent(9_000_000);
        assert!(pace.allows(at(110)) && pace.limit().is_none());
        pace.on_repeat(1_000_000, at(176));
        assert_eq!(pace.limit(), Some(4_000_000_000));
        pace.on_repeat(900_000, at(176)); // the next READ
        assert_eq!(pace.limit(), Some(4_000_000_000));
        assert_eq!(pace.rate(at(1176)), 8_000_000_000);
        assert!(pace.allows(at(176 + 15_999)) && pace.limit().is_some());
        assert!(pace.allows(at(176 + 16_000)) && pace.limit().is_none());
    }

    #[test]
    fn a_repeat_that_comes_at_once_or_of_little_cuts_nothing() {
        for (bytes, behind, millis, cuts) in [
            (9_000_000, 1_000_000, 110, false),
            (100_000, 100_000, 176, false),
            (90_000_000, LATE_BYTES, 110, true), // late despite ongoing responses
        ] {
            let mut pace = sent(bytes);
            pace.on_repeat(behind, at(millis));
            assert_eq!(pace.limit().is_some(), cuts);
        }
    }

    #[test]
    fn responses_are_spread() {
        let mut pace = sent(300_000);
        pace.on_repeat(1000, at(176));
        assert_eq!(pace.limit(), Some(133_333_333));
        let mut left = 0;
        while pace.allows(at(176)) {
            pace.on_sent(1000, at(176));
            left += 1000;
        }
        assert!(left <= 2000, "{left}");
        let next = pace.deadline().unwrap();
        assert!(next > at(176) && next < at(177));
        pace.handle_timeout(next);
        assert!(pace.deadline().is_none() && pace.allows(next));
    }
}
