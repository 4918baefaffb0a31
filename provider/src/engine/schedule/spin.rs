//! Adaptive spinning: poll for the next packet, or sleep.

use std::time::Duration;

use roce_transport::time::Instant;

use super::{
    backoff::Backoff,
    times::{ALONE_YIELDS, CROWDED, LINGER, RARE_YIELDS, SLICE, SWITCH, YIELD_AFTER},
};

#[derive(Debug)]
pub(in crate::engine) struct SpinPolicy {
    /// Yield time above which another thread ran.
    switch: Duration,
    /// Backoff while others want the processor.
    crowd: Backoff,
    /// Idle yields since the latest busy one.
    idle_yields: u32,
}

impl SpinPolicy {
    pub(in crate::engine) fn new(switch: Duration) -> Self {
        Self { switch, crowd: Backoff::default(), idle_yields: 0 }
    }

    /// True if the thread spins on after `idle` without packets.
    pub(in crate::engine) fn lasts(&self, idle: Duration, now: Instant) -> bool {
        idle <= LINGER && !self.crowd.lasts(now)
    }

    pub(in crate::engine) fn record_yield(&mut self, took: Duration, now: Instant) {
        if took <= self.switch {
            self.idle_yields = self.idle_yields.saturating_add(1);
            self.crowd.miss(ALONE_YIELDS);
            return;
        }
        if took > SLICE || self.idle_yields < RARE_YIELDS {
            self.crowd.renew(CROWDED, now);
        }
        self.idle_yields = 0;
    }
}

/// Yield policy of empty polls.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct PollYields {
    empty_polls: u32,
    /// Empty polls before a yield.
    after: u32,
}

impl PollYields {
    pub(in crate::engine) const fn new() -> Self {
        Self { empty_polls: 0, after: YIELD_AFTER[1] }
    }

    /// True if the thread yields.
    pub(in crate::engine) const fn count_poll(&mut self, received: bool) -> bool {
        self.empty_polls = if received { 0 } else { self.empty_polls + 1 };
        self.empty_polls == self.after
    }

    pub(in crate::engine) fn record_yield(&mut self, took: Duration) {
        let [soon, late] = YIELD_AFTER;
        self.empty_polls = 0;
        self.after = if took > SWITCH { self.after / 2 } else { self.after * 2 }.clamp(soon, late);
    }
}

#[derive(Debug)]
pub(in crate::engine) struct WaitPolicy {
    pub(in crate::engine) spin: SpinPolicy,
    /// Backoff while other threads poll.
    pub(in crate::engine) polled: Backoff,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self { spin: SpinPolicy::new(SLICE), polled: Backoff::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls_before_yields(yields: &mut PollYields, took: Duration, count: usize) -> Vec<u32> {
        let next = |_| {
            let polls = (1..1000).find(|_| yields.count_poll(false));
            yields.record_yield(took);
            polls.unwrap()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_thread_that_polls_in_vain_yields_soon_where_others_want_the_processor() {
        let mut yields = PollYields::new();
        assert_eq!(polls_before_yields(&mut yields, SWITCH, 3), [64, 64, 64], "nobody does");
        let wanted = SWITCH + Duration::from_nanos(1);
        assert_eq!(polls_before_yields(&mut yields, wanted, 5), [64, 32, 16, 8, 8]);
        assert_eq!(polls_before_yields(&mut yields, SWITCH, 5), [8, 16, 32, 64, 64]);
        for _ in 0..100 {
            assert!((1..64).all(|_| !yields.count_poll(false)));
            assert!(!yields.count_poll(true), "it has received something");
        }
    }

    #[test]
    fn who_shares_the_processor_sleeps_at_once() {
        const SWITCH: Duration = Duration::from_micros(5);
        let mut spin = SpinPolicy::new(SWITCH);
        let mut now = Instant::ZERO.plus(Duration::from_secs(1));
        assert!(spin.lasts(LINGER, now));
        assert!(!spin.lasts(LINGER + Duration::from_nanos(1), now));
        spin.record_yield(SWITCH, now);
        assert!(spin.lasts(Duration::ZERO, now));
        spin.record_yield(SWITCH * 2, now);
        assert!(!spin.lasts(Duration::ZERO, now));
        spin.record_yield(Duration::ZERO, now.plus(CROWDED[0] / 2));
        assert!(!spin.lasts(Duration::ZERO, now.plus(CROWDED[0] / 2)));
        assert!(spin.lasts(Duration::ZERO, now.plus(CROWDED[0])));
        let mut crowd = |spin: &mut SpinPolicy, length: Duration| {
            spin.record_yield(SWITCH * 2, now);
            assert!(!spin.lasts(Duration::ZERO, now.plus(length / 2)));
            now = now.plus(length);
            assert!(spin.lasts(Duration::ZERO, now));
        };
        crowd(&mut spin, CROWDED[0] * 2);
        (0..10).for_each(|_| spin.record_yield(SWITCH * 2, Instant::ZERO));
        crowd(&mut spin, CROWDED[1]);
        (0..ALONE_YIELDS).for_each(|_| spin.record_yield(Duration::ZERO, Instant::ZERO));
        now = now.plus(CROWDED[1]);
        spin.record_yield(SWITCH * 2, now);
        assert!(spin.lasts(Duration::ZERO, now), "once among many, and not for long");
        spin.record_yield(SLICE * 2, now);
        assert!(!spin.lasts(Duration::ZERO, now));
        assert!(spin.lasts(Duration::ZERO, now.plus(CROWDED[0])));
    }
}
