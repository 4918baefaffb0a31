//! Monotonic wall time of completions. The clocks drift, so their distance varies between
//! conversions.

use std::time::Duration;

use roce_provider::transport::time::Instant;

/// Larger steps of the clock may set time back.
const SET_BACK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestTime {
    timestamp: Instant,
    wall: Duration,
}

impl LatestTime {
    pub(crate) const NONE: Self = Self { timestamp: Instant::ZERO, wall: Duration::ZERO };

    /// Never before an earlier timestamp's time; equal for equal timestamps.
    pub(crate) fn of(&mut self, timestamp: Instant, wall: Duration) -> Duration {
        if timestamp < self.timestamp {
            return wall.min(self.wall);
        }
        let was_set_back = wall + SET_BACK < self.wall;
        if timestamp == self.timestamp && !self.wall.is_zero() && !was_set_back {
            return self.wall;
        }
        let wall = if was_set_back { wall } else { wall.max(self.wall) };
        *self = Self { timestamp, wall };
        wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_go_back_unless_the_clock_was_set_back() {
        let mut latest = LatestTime::NONE;
        let mut of = |timestamp, wall| {
            let (timestamp, wall) = (Instant::from_nanos(timestamp), Duration::from_nanos(wall));
            latest.of(timestamp, wall).as_nanos()
        };
        const BASE: u64 = 5_000_000_000;
        assert_eq!(of(10, BASE + 10), u128::from(BASE) + 10);
        assert_eq!(of(11, BASE + 9), u128::from(BASE) + 10, "not back by a nanosecond");
        assert_eq!(of(11, BASE + 13), u128::from(BASE) + 10, "the same again");
        assert_eq!(of(12, BASE + 12), u128::from(BASE) + 12);
        assert_eq!(of(11, BASE + 14), u128::from(BASE) + 12, "one before it");
        assert_eq!(of(13, 1_000), 1_000, "the clock was set back");
    }
}
