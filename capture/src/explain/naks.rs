//! NAKs to a requester, and the retransmissions they cause.

use std::time::Duration;

/// Silence after which an in-order packet may also be a probe. No requester probes sooner.
pub(super) const SILENCE: Duration = Duration::from_micros(100);

/// PSNs count as in [`End`](super::end::End).
#[derive(Default)]
pub(super) struct Naks {
    /// Last NAK's request, while nothing else has made the requester go back.
    asked: Option<Asked>,
    /// Latest NAK, implied or not.
    pub(super) latest: Option<Duration>,
    /// Shortest time from a NAK to its retransmission.
    reaction: Option<Duration>,
    /// Packets are lost before the capture: the requester is far.
    pub(super) are_far: bool,
    /// Until then a far requester's probe may cross the NAK.
    crossing: Duration,
}

#[derive(Clone, Copy)]
struct Asked {
    /// Next PSN.
    next: i64,
    /// Time of the NAK or of the last retransmission.
    since: Duration,
    /// Retransmitted packets.
    count: u32,
}

impl Naks {
    /// `alone`: nothing else makes the requester go back. `captured`: the packet at `at` was.
    pub(super) fn take(&mut self, now: Duration, at: i64, alone: bool, captured: bool) {
        self.latest = Some(now);
        self.asked = alone.then_some(Asked { next: at, since: now, count: 0 });
        self.are_far |= !captured;
        if self.are_far {
            self.crossing = now + SILENCE;
        }
    }

    pub(super) const fn on_go_back(&mut self, now: Duration) {
        self.latest = Some(now);
        self.asked = None;
    }

    pub(super) fn advance(&mut self, to: i64) {
        self.asked = self.asked.filter(|asked| asked.next >= to);
    }

    /// True if a NAK caused the retransmission as fast as others.
    pub(super) fn is_caused_by_nak(&mut self, now: Duration, at: i64, span: i64) -> bool {
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

    /// True if a probe sent before the NAK may have retransmitted the last packet.
    pub(super) fn may_have_crossed(&self, now: Duration) -> bool {
        now < self.crossing && self.asked.is_none_or(|asked| asked.count <= 2)
    }
}
