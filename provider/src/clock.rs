//! The only reader of the time.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use roce_transport::time::Instant;
use rustix::time::{ClockId, clock_gettime};

struct Origin {
    /// System clock in nanoseconds.
    monotonic: u64,
    wall: SystemTime,
}

/// Nanoseconds of [`std::time::Instant`]'s clock, read directly: its overhead shows.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Common to all devices of the process, so fabrics agree on the time.
fn origin() -> &'static Origin {
    static ORIGIN: OnceLock<Origin> = OnceLock::new();
    ORIGIN.get_or_init(|| Origin { monotonic: monotonic(), wall: SystemTime::now() })
}

/// Returns the time since the process's first reading.
#[must_use]
pub fn now() -> Instant {
    let origin = origin().monotonic;
    Instant::from_nanos(monotonic().saturating_sub(origin))
}

/// Reads instant and time of day together: the least interrupted of a few readings.
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

/// Returns an instant's time of day, since the Unix epoch.
pub(crate) fn wall(at: Instant) -> Duration {
    origin().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
        + at.since(Instant::ZERO)
}
