//! Looks at the locks of a process that seems to have ended. Its descriptors are closed one after
//! another, so its locks may last a little longer than its connections.

use std::time::Duration;

use roce_transport::time::Instant;

/// Time from the first look to the second. It doubles from one to the next.
const FIRST: Duration = Duration::from_millis(1);
/// Number of looks: a process with much memory ends in about a second.
const MOST: u32 = 11;

/// The next of several looks.
pub(super) struct Looks {
    pub(super) due: Instant,
    done: u32,
}

impl Looks {
    /// The first one is due now.
    pub(super) const fn begin(now: Instant) -> Self {
        Self { due: now, done: 0 }
    }

    /// The looks that are left after this one.
    pub(super) fn next(self, now: Instant) -> Option<Self> {
        let due = now.plus(FIRST * (1 << self.done));
        (self.done + 1 < MOST).then(|| Self { due, done: self.done + 1 })
    }
}
