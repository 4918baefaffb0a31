use std::time::SystemTime;

use roce_transport::time::Instant;

/// Timestamp clock and time of day, read at once (`ibv_values_ex` with
/// `IBV_VALUES_MASK_RAW_CLOCK`).
///
/// ```
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// let clock = context.query_clock();
/// assert_eq!(clock.wall_time(clock.raw), clock.wall);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct ClockValues {
    /// Timestamp clock: monotonic nanoseconds, common to the process.
    pub raw: Instant,
    /// Time of day at that instant.
    pub wall: SystemTime,
}

impl ClockValues {
    /// Converts a timestamp to time of day. The clocks drift: read again at intervals.
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
