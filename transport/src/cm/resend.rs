//! Messages that are sent again until they are answered.

use alloc::boxed::Box;
use core::time::Duration;

use super::{message::CmMad, reason::MadReason};
use crate::time::Instant;

/// Time after which a peer at which no program listens gets its request again.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(10);

/// A message that is sent again until it is answered.
pub(super) struct Resend {
    pub(super) mad: Box<CmMad>,
    /// Times that it will be sent again.
    left: u8,
    /// True if the peer has acknowledged its receipt (MRA) since it was last sent.
    acknowledged: bool,
    /// True if nobody listened when it was last sent.
    refused: bool,
    /// End of the grace for a peer at which no program listens; set by its first refusal.
    until: Option<Instant>,
}

impl Resend {
    pub(super) const fn new(mad: Box<CmMad>, left: u8) -> Self {
        Self { mad, left, acknowledged: false, refused: false, until: None }
    }

    /// The message, and the reason, if it is to be sent once more.
    pub(super) fn next(&mut self) -> Option<(Box<CmMad>, MadReason)> {
        self.left = self.left.checked_sub(1)?;
        self.acknowledged = false;
        let refused = core::mem::take(&mut self.refused);
        let reason = if refused { MadReason::NoListener } else { MadReason::Unanswered };
        Some((self.mad.clone(), reason))
    }

    /// Notes that its receipt is acknowledged. Returns false if that was known.
    pub(super) const fn acknowledge(&mut self) -> bool {
        !core::mem::replace(&mut self.acknowledged, true)
    }

    /// True if a request that found no listener is to be sent again after [`RETRY_DELAY`].
    pub(super) fn outlasts_refusal(&mut self, now: Instant, grace: Duration) -> bool {
        let until = *self.until.get_or_insert(now.plus(grace));
        if until <= now {
            return false;
        }
        self.left += 1; // it was answered, after all
        self.refused = true;
        true
    }
}
