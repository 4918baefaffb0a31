use alloc::boxed::Box;
use core::time::Duration;

use super::message::CmMad;
use crate::{named::named, time::Instant};

/// Delay for a REQ that found no listener.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(10);

/// A message retransmitted until its response.
pub(super) struct Resend {
    pub(super) mad: Box<CmMad>,
    left: u8,
    /// MRA since the last transmission.
    acknowledged: bool,
    /// No listener at the last transmission.
    refused: bool,
    /// End of `listen_grace`, from the first refusal.
    until: Option<Instant>,
}

impl Resend {
    pub(super) const fn new(mad: Box<CmMad>, left: u8) -> Self {
        Self { mad, left, acknowledged: false, refused: false, until: None }
    }

    pub(super) fn next(&mut self) -> Option<(Box<CmMad>, MadReason)> {
        self.left = self.left.checked_sub(1)?;
        self.acknowledged = false;
        let refused = core::mem::take(&mut self.refused);
        let reason = if refused { MadReason::NoListener } else { MadReason::Unanswered };
        Some((self.mad.clone(), reason))
    }

    /// Records an MRA; false if already recorded.
    pub(super) const fn acknowledge(&mut self) -> bool {
        !core::mem::replace(&mut self.acknowledged, true)
    }

    /// True if a refused REQ is retried after [`RETRY_DELAY`].
    pub(super) fn outlasts_refusal(&mut self, now: Instant, grace: Duration) -> bool {
        let until = *self.until.get_or_insert(now.plus(grace));
        if until <= now {
            return false;
        }
        self.left += 1; // a refusal is a response
        self.refused = true;
        true
    }
}

named! {
    /// Reason for sending a CM message.
    MadReason {
        First "first transmission";
        Unanswered "retransmitted: no response in time";
        NoListener "retransmitted: nobody listened";
        Repeated "retransmitted: the peer retransmitted, too";
        Response "a response without a connection";
        GivenUp "its response is no longer awaited";
        Stale "asks whether the peer still has this connection";
    }
}
