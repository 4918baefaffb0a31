use std::time::Duration;

use roce_transport::time::Instant;

use roce_provider::link::now;

/// A deadline, or none.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// `limit` from now.
    #[must_use]
    pub fn after(limit: Option<Duration>) -> Self {
        Self(limit.map(|limit| now().plus(limit)))
    }

    /// Remaining time; `None` without a deadline.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.since(now()))
    }

    /// True once passed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}
