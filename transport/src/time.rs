//! Time as an argument.

use core::time::Duration;

/// Nanoseconds since the caller's origin, monotonic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// Origin.
    pub const ZERO: Self = Self(0);

    /// Makes an instant.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Adds a duration, saturating.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        if nanos > u64::MAX as u128 {
            Self(u64::MAX)
        } else {
            Self(self.0.saturating_add(nanos as u64))
        }
    }

    /// Earliest instant; `u64::MAX` counts as `None`. Branch-free: memory checkers report a branch
    /// on `None` as a read of uninitialised memory.
    #[must_use]
    pub fn earliest<const N: usize>(instants: [Option<Self>; N]) -> Option<Self> {
        let earliest = instants.map(|at| at.map_or(u64::MAX, Self::as_nanos)).into_iter().min()?;
        (earliest != u64::MAX).then_some(Self(earliest))
    }

    /// Time since `earlier`, saturating at zero.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// RC acknowledge timeout of a code: 4.096 µs · 2^code; 0: never. The specification allows four
/// times as long.
#[must_use]
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 0x1F {
        0 => None,
        code => Some(timeout(code)),
    }
}

pub(crate) const fn timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1F))
}

const RNR_TIMER_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// RNR NAK timer of a code: 0.01 ms (1) to 491.52 ms (31), 655.36 ms (0).
#[must_use]
pub const fn rnr_timer(code: u8) -> Duration {
    Duration::from_micros(RNR_TIMER_10US[(code & 0x1F) as usize] as u64 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_what_is_there() {
        let at = |nanos| Some(Instant::from_nanos(nanos));
        assert_eq!(Instant::earliest([]), None);
        assert_eq!(Instant::earliest([None, None]), None);
        assert_eq!(Instant::earliest([None, at(7), at(3), None]), at(3));
        assert_eq!(Instant::earliest([at(0), None]), at(0));
    }

    #[test]
    fn timeouts_follow_their_tables() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(4096 << 14)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
        assert_eq!(rnr_timer(0), Duration::from_micros(655_360));
        assert_eq!(rnr_timer(1), Duration::from_micros(10));
        assert_eq!(rnr_timer(12), Duration::from_micros(640));
        assert_eq!(rnr_timer(25), Duration::from_micros(61_440));
        assert_eq!(rnr_timer(31), Duration::from_micros(491_520));
    }
}
