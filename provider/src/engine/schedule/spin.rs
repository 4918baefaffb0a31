//! Adaptive spinning: whether a thread looks for the next packet or sleeps until it comes.

use std::time::Duration;

use roce_transport::time::Instant;

use super::{
    backoff::Backoff,
    times::{ALONE_YIELDS, CROWDED, LINGER, RARE_YIELDS, SLICE, SWITCH, YIELD_AFTER},
};

/// See the [module's documentation](self).
#[derive(Debug)]
pub(in crate::engine) struct SpinPolicy {
    /// A yield that takes longer has let somebody run who wants the processor.
    switch: Duration,
    /// Others want the processor.
    crowd: Backoff,
    /// Number of yields to nobody since the last one to others.
    vain: u32,
}

impl SpinPolicy {
    /// `switch`: time of a yield above which others want the processor.
    pub(in crate::engine) fn new(switch: Duration) -> Self {
        Self { switch, crowd: Backoff::default(), vain: 0 }
    }

    /// True if it looks once more, so long after the last packet.
    pub(in crate::engine) fn lasts(&self, idle: Duration, now: Instant) -> bool {
        idle <= LINGER && !self.crowd.lasts(now)
    }

    /// It has left the processor to others, if there were any, for so long.
    pub(in crate::engine) fn record_yield(&mut self, took: Duration, now: Instant) {
        if took <= self.switch {
            self.vain = self.vain.saturating_add(1);
            self.crowd.miss(ALONE_YIELDS);
            return;
        }
        if took > SLICE || self.vain < RARE_YIELDS {
            self.crowd.renew(CROWDED, now);
        }
        self.vain = 0;
    }
}

/// When a thread of the program that polls in vain yields.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct PollYields {
    /// Number of its polls in a row that received nothing.
    vain: u32,
    /// It yields after so many.
    after: u32,
}

impl PollYields {
    pub(in crate::engine) const fn new() -> Self {
        Self { vain: 0, after: YIELD_AFTER[1] }
    }

    /// It has polled, and received something or not. Returns true if it yields.
    pub(in crate::engine) const fn count_poll(&mut self, received: bool) -> bool {
        self.vain = if received { 0 } else { self.vain + 1 };
        self.vain == self.after
    }

    /// It has left the processor to others, if there were any, for so long.
    pub(in crate::engine) fn record_yield(&mut self, took: Duration) {
        let [soon, late] = YIELD_AFTER;
        self.vain = 0;
        self.after = if took > SWITCH { self.after / 2 } else { self.after * 2 }.clamp(soon, late);
    }
}

/// A waiting thread's knowledge of other threads.
#[derive(Debug)]
pub(in crate::engine) struct Waiter {
    pub(in crate::engine) spin: SpinPolicy,
    /// Other threads of the program poll.
    pub(in crate::engine) polled: Backoff,
}

impl Default for Waiter {
    fn default() -> Self {
        Self { spin: SpinPolicy::new(SLICE), polled: Backoff::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of polls in vain before each of so many yields, which take so long.
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
