//! NAKs to a requester, and what it sends again because of them.

use std::time::Duration;

/// Silence after which a packet in its turn may also be a probe. No requester probes sooner.
pub(super) const SILENCE: Duration = Duration::from_micros(100);

/// The NAKs of a requester. PSNs are counted as [`End`](super::end::End) counts them.
#[derive(Default)]
pub(super) struct Naks {
    /// Request of the last NAK, while nothing else has made the requester go back.
    asked: Option<Asked>,
    /// The time of the latest, also of those that answers imply.
    pub(super) latest: Option<Duration>,
    /// The shortest time from a NAK to the first that it has asked for.
    reaction: Option<Duration>,
    /// Packets are lost before the capture: it is far from the requester.
    pub(super) are_far: bool,
    /// Until then a probe may have crossed the NAK on its way to a requester that is far.
    crossing: Duration,
}

#[derive(Clone, Copy)]
struct Asked {
    /// PSN that is to come next.
    next: i64,
    /// Time of the NAK, or of what was sent again last.
    since: Duration,
    /// Packets that were sent again.
    count: u32,
}

impl Naks {
    /// A NAK for `at` passes. `alone`: nothing else makes the requester go back. `captured`: the
    /// packet was.
    pub(super) fn take(&mut self, now: Duration, at: i64, alone: bool, captured: bool) {
        self.latest = Some(now);
        self.asked = alone.then_some(Asked { next: at, since: now, count: 0 });
        self.are_far |= !captured;
        if self.are_far {
            self.crossing = now + SILENCE;
        }
    }

    /// Something else makes the requester go back.
    pub(super) const fn leave(&mut self, now: Duration) {
        self.latest = Some(now);
        self.asked = None;
    }

    /// Everything before `to` is answered.
    pub(super) fn reach(&mut self, to: i64) {
        self.asked = self.asked.filter(|asked| asked.next >= to);
    }

    /// A packet is sent again. True if a NAK has asked for it, and it comes as soon as others did.
    /// Of a requester that is near, what is not sent at once may have another reason.
    pub(super) fn ask_for(&mut self, now: Duration, at: i64, span: i64) -> bool {
        let Some(Asked { next, since, count }) = self.asked else { return false };
        // those in between may be lost
        if next != at && !(self.are_far && next < at) {
            return false;
        }
        self.asked = Some(Asked { next: at + span, since: now, count: count + 1 });
        let after = now.saturating_sub(since);
        let usual = *self.reaction.get_or_insert(after);
        if count == 0 {
            self.reaction = Some(usual.min(after));
        }
        self.are_far && next == at && after <= usual.max(SILENCE)
    }

    /// True if the last packet of all may be sent again by a probe that left before the NAK came.
    /// What follows others that were sent again is none.
    pub(super) fn may_have_crossed(&self, now: Duration) -> bool {
        now < self.crossing && self.asked.is_none_or(|asked| asked.count <= 2)
    }
}
