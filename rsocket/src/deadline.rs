//! Ends of waits.

use std::time::Duration;

use roce_transport::time::Instant;

use roce_provider::link::now;

/// The end of a wait, or none.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// So much later than now.
    #[must_use]
    pub fn after(limit: Option<Duration>) -> Self {
        Self(limit.map(|limit| now().plus(limit)))
    }

    /// The time that is left; `None` for a wait without an end.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.since(now()))
    }

    /// True if none is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}
