//! The only reader of the time.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use roce_transport::time::Instant;
use rustix::time::{ClockId, clock_gettime};

struct Origin {
    /// Nanoseconds.
    monotonic: u64,
    wall: SystemTime,
}

/// [`std::time::Instant`]'s clock in nanoseconds, without its overhead.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Process-wide: devices on a fabric agree on the time.
static ORIGIN: LazyLock<Origin> =
    LazyLock::new(|| Origin { monotonic: monotonic(), wall: SystemTime::now() });

/// Time since the process's first reading.
#[must_use]
pub fn now() -> Instant {
    let origin = ORIGIN.monotonic;
    Instant::from_nanos(monotonic().saturating_sub(origin))
}

/// Instant and time of day, by the least interrupted of four readings.
pub(crate) fn both() -> (Instant, SystemTime) {
    let read = || {
        let (before, wall, after) = (now(), SystemTime::now(), now());
        let between = after.since(before);
        (between, before.plus(between / 2), wall)
    };
    let readings = [read(), read(), read(), read()];
    let [first, ..] = readings;
    let (_, raw, wall) = readings.into_iter().min().unwrap_or(first);
    (raw, wall)
}

/// Time of day since the Unix epoch.
pub(crate) fn wall(at: Instant) -> Duration {
    ORIGIN.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + at.since(Instant::ZERO)
}
