//! The only place where the time is read.

use std::time::{Duration, SystemTime};

use roce_transport::time::Instant;

/// Time since a device was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
    wall: SystemTime,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: std::time::Instant::now(), wall: SystemTime::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO.plus(self.origin.elapsed())
    }

    /// The time of day of an instant, since the Unix epoch.
    pub(crate) fn wall(&self, at: Instant) -> Duration {
        self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + at.since(Instant::ZERO)
    }
}
