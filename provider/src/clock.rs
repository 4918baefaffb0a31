//! The only place where the time is read.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use roce_transport::time::Instant;
use rustix::time::{ClockId, clock_gettime};

struct Origin {
    /// Nanoseconds of the system's clock.
    monotonic: u64,
    wall: SystemTime,
}

/// Nanoseconds of the clock that [`std::time::Instant`] reads, which is asked about so often that
/// its detours show.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The same for every device of the process, so that devices on one fabric agree about the time.
fn origin() -> &'static Origin {
    static ORIGIN: OnceLock<Origin> = OnceLock::new();
    ORIGIN.get_or_init(|| Origin { monotonic: monotonic(), wall: SystemTime::now() })
}

/// The present time: since the process first asked for it.
#[must_use]
pub fn now() -> Instant {
    let origin = origin().monotonic;
    Instant::from_nanos(monotonic().saturating_sub(origin))
}

/// An instant and the time of day, at once: of a few readings the one that was interrupted least.
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

/// The time of day of an instant, since the Unix epoch.
pub(crate) fn wall(at: Instant) -> Duration {
    origin().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
        + at.since(Instant::ZERO)
}
