//! The clock of completion timestamps.

use std::time::SystemTime;

use roce_transport::time::Instant;

/// The adapter's clock and the time of day, read at once (`ibv_values_ex` with
/// `IBV_VALUES_MASK_RAW_CLOCK`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct ClockValues {
    /// What the timestamps of completions count: nanoseconds, never backwards, the same for every
    /// device of the process.
    pub raw: Instant,
    /// The time of day at that instant.
    pub wall: SystemTime,
}

impl ClockValues {
    /// The time of day of a timestamp, by what the system's clock said when these values were read.
    /// The further away, the more the two clocks may have drifted apart: read them anew now and
    /// then.
    #[must_use]
    pub fn wall_time(&self, timestamp: Instant) -> SystemTime {
        let (before, after) = (self.raw.since(timestamp), timestamp.since(self.raw));
        let earlier = self.wall.checked_sub(before).unwrap_or(SystemTime::UNIX_EPOCH);
        earlier.checked_add(after).unwrap_or(earlier)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timestamps_before_and_after() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let values = ClockValues { raw: Instant::from_nanos(5_000), wall };
        assert_eq!(values.wall_time(Instant::from_nanos(5_000)), wall);
        assert_eq!(
            values.wall_time(Instant::from_nanos(3_000)),
            wall - Duration::from_nanos(2_000)
        );
        assert_eq!(
            values.wall_time(Instant::from_nanos(9_000)),
            wall + Duration::from_nanos(4_000)
        );
    }
}
