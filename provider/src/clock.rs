//! The only place where the time is read.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use roce_transport::time::Instant;

struct Origin {
    monotonic: std::time::Instant,
    wall: SystemTime,
}

/// The same for every device of the process, so that devices on one fabric agree about the time.
fn origin() -> &'static Origin {
    static ORIGIN: OnceLock<Origin> = OnceLock::new();
    ORIGIN.get_or_init(|| Origin { monotonic: std::time::Instant::now(), wall: SystemTime::now() })
}

/// Time since the process first asked for it.
pub(crate) fn now() -> Instant {
    Instant::ZERO.plus(origin().monotonic.elapsed())
}

/// An instant and the time of day, at once.
pub(crate) fn both() -> (Instant, SystemTime) {
    (now(), SystemTime::now())
}

/// The time of day of an instant, since the Unix epoch.
pub(crate) fn wall(at: Instant) -> Duration {
    origin().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + at.since(Instant::ZERO)
}
