use std::time::Duration;

use roce_transport::time::Instant;

/// Consecutive failures that lose a link.
pub(crate) const LOST_AFTER: u32 = 64;
/// Time that the failures must span: a busy link fails 64 times in a moment. Failures further apart
/// are not consecutive.
pub(crate) const LOST_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u32,
    first: Instant,
    last: Instant,
    is_lost: bool,
}

impl Failures {
    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) const fn count_success(&mut self) {
        self.count = 0;
    }

    /// True if the failure is the first in a row.
    pub(super) fn count_failure(&mut self, now: Instant) -> bool {
        if self.count == 0 || now.since(self.last) > LOST_TIME {
            (self.count, self.first) = (0, now);
        }
        self.count = self.count.saturating_add(1);
        self.last = now;
        self.is_lost |= self.count >= LOST_AFTER && now.since(self.first) >= LOST_TIME;
        self.count == 1
    }

    pub(super) const fn lose(&mut self) {
        self.is_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_lost(apart: Duration) -> Option<u32> {
        let mut failures = Failures::default();
        (1..=100_000).find(|&number| {
            let is_first = failures.count_failure(Instant::ZERO.plus(apart * number));
            assert_eq!(is_first, number == 1 || apart > LOST_TIME);
            failures.is_lost()
        })
    }

    #[test]
    fn a_link_is_lost_after_many_failures_within_a_time() {
        assert_eq!(until_lost(Duration::from_micros(20)), Some(50_001));
        assert_eq!(until_lost(Duration::from_millis(10)), Some(101));
        assert_eq!(until_lost(Duration::from_millis(900)), Some(LOST_AFTER));
        assert_eq!(until_lost(Duration::ZERO), None, "in a moment");
        assert_eq!(until_lost(Duration::from_secs(60)), None, "far apart");
    }

    #[test]
    fn a_success_ends_a_row() {
        let mut failures = Failures::default();
        for number in 0..10_000 {
            failures.count_failure(Instant::ZERO.plus(Duration::from_millis(100) * number));
            if number % 60 == 0 {
                failures.count_success();
            }
        }
        assert!(!failures.is_lost());
        failures.lose();
        failures.count_success();
        assert!(failures.is_lost(), "for good");
    }
}
