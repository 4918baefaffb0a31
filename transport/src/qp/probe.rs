//! Tail-loss probes: the last packet is sent again after a few round trips without an answer.
//!
//! A lost packet with others behind it is found by a NAK. When the last one is lost, or the answer
//! to it, nothing shows the loss until the acknowledge timeout, which is 67 ms or more in most
//! programs. The responder answers a probe with an acknowledgement, or with a NAK for what is
//! missing before it. Probes change neither the retry counter nor the acknowledge timer, so the
//! errors of 9.9.2.4.1 come when they did.
//!
//! A responder sends one NAK for a gap (9.7.5.2.8). If the NAK or the retransmission is lost, it
//! drops a repeat of the last packet in silence. So where a gap is known, and after a probe without
//! an answer, the probe is the oldest packet. If its acknowledgement goes no further, the packets
//! behind it have been dropped.
//!
//! The round-trip time is smoothed as in RFC 6298. A packet that was sent twice is not measured
//! (Karn's rule); until one is measured, the wait stays as long as the last probe's.

use crate::{psn::Psn, time::Instant};

/// Probes without an answer in between; after them only the acknowledge timer is left.
const MOST: u32 = 3;
/// Number of times that the wait doubles, at most.
const LONGEST: u32 = 6;
/// Nanoseconds before the first probe, at least: a peer's thread that sleeps takes as long to wake.
const SHORTEST: u64 = 200_000;
/// Nanoseconds while no round trip has been measured.
const UNMEASURED: u64 = 10_000_000;

/// Estimate of the round-trip time, and when the next probe is due.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    round_trip: Option<RoundTrip>,
    /// Packet whose answer is being timed, and when it left.
    timed: Option<(Psn, Instant)>,
    /// Probes since the last progress.
    sent: u32,
    /// Number of times that the wait has doubled since something was measured.
    doubled: u32,
    deadline: Option<Instant>,
    /// The deadline has passed, and the probe has not left yet.
    is_due: bool,
    /// The oldest packet, which the last probe repeated.
    repeated: Option<Psn>,
}

/// In nanoseconds.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: u64,
    variation: u64,
}

impl Probe {
    /// A packet that asks for an answer has left; `again` if it was sent before.
    pub(crate) fn on_sent(&mut self, psn: Psn, again: bool, now: Instant) {
        if again {
            self.timed = None;
        } else if self.timed.is_none() {
            self.timed = Some((psn, now));
        }
        self.is_due = false;
        self.start(now);
    }

    /// Everything before `end` has been answered; `waits` if more is still to be answered.
    pub(crate) fn on_progress(&mut self, end: Psn, waits: bool, now: Instant) {
        if let Some((_, left)) = self.timed.filter(|(psn, _)| psn.is_before(end)) {
            self.measure(now.as_nanos().saturating_sub(left.as_nanos()));
            self.timed = None;
            self.doubled = 0;
        }
        self.sent = 0;
        self.repeated = None;
        self.stop();
        if waits {
            self.start(now);
        }
    }

    /// Packets are about to be sent again, or nothing is to be sent for a while.
    pub(crate) const fn stop(&mut self) {
        self.deadline = None;
        self.is_due = false;
    }

    /// The same, and the packet being timed will be sent a second time.
    pub(crate) const fn on_loss(&mut self) {
        self.timed = None;
        self.stop();
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns whether a probe has become due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        let becomes_due = self.deadline.is_some_and(|deadline| deadline <= now);
        if becomes_due {
            self.deadline = None;
            self.is_due = true;
        }
        becomes_due
    }

    /// True if a probe is to leave.
    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// True if a probe is to leave now; it counts as sent.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if !self.is_due {
            return false;
        }
        self.is_due = false;
        self.timed = None;
        self.sent += 1;
        self.doubled = (self.doubled + 1).min(LONGEST);
        self.start(now);
        true
    }

    /// True if the probe that was taken is the first one since the last progress.
    pub(crate) const fn is_first(&self) -> bool {
        self.sent == 1
    }

    /// The probe that was taken repeats the oldest packet.
    pub(crate) const fn record_repeated(&mut self, oldest: Psn) {
        self.repeated = Some(oldest);
    }

    /// True if `psn` is the oldest packet and a probe has repeated it.
    pub(crate) fn has_repeated(&self, psn: Psn) -> bool {
        self.repeated == Some(psn)
    }

    fn start(&mut self, now: Instant) {
        let wait = self.wait() << self.doubled;
        self.deadline =
            (self.sent < MOST).then(|| Instant::from_nanos(now.as_nanos().saturating_add(wait)));
    }

    /// Nanoseconds.
    fn wait(&self) -> u64 {
        self.round_trip.map_or(UNMEASURED, |RoundTrip { smoothed, variation }| {
            (smoothed + variation * 4).max(smoothed * 2).max(SHORTEST)
        })
    }

    fn measure(&mut self, sample: u64) {
        self.round_trip = Some(match self.round_trip {
            None => RoundTrip { smoothed: sample, variation: sample / 2 },
            Some(RoundTrip { smoothed, variation }) => RoundTrip {
                smoothed: smoothed * 7 / 8 + sample / 8,
                variation: variation * 3 / 4 + smoothed.abs_diff(sample) / 4,
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// A probe estimate after one exchange that took so long.
    fn measured(micros: u64) -> Probe {
        let mut probe = Probe::default();
        probe.on_sent(Psn::new(0), false, at(0));
        probe.on_progress(Psn::new(1), false, at(micros));
        probe
    }

    #[test]
    fn the_wait_follows_the_round_trip() {
        assert_eq!(Probe::default().wait(), UNMEASURED);
        assert_eq!(measured(10).wait(), SHORTEST);
        assert_eq!(measured(1000).wait(), 3_000_000);
        let mut probe = measured(1000);
        for n in 1..100 {
            probe.on_sent(Psn::new(n), false, at(0));
            probe.on_progress(Psn::new(n + 1), false, at(1000));
        }
        // a steady round trip leaves no variation
        assert!(probe.wait() <= 2_001_000, "{}", probe.wait());
    }

    #[test]
    fn probes_come_at_growing_distances_and_end() {
        let mut probe = measured(1000);
        probe.on_sent(Psn::new(1), false, at(0));
        for due in [3000, 9000, 21_000] {
            assert_eq!(probe.deadline(), Some(at(due)));
            probe.handle_timeout(at(due));
            assert!(probe.take(at(due)) && !probe.take(at(due)));
        }
        assert_eq!(probe.deadline(), None);
        probe.on_progress(Psn::new(1), true, at(30_000));
        assert!(probe.deadline().is_some(), "progress allows new ones");
    }

    #[test]
    fn a_packet_sent_twice_is_not_measured() {
        let mut probe = measured(1000);
        probe.on_sent(Psn::new(1), false, at(0));
        probe.on_loss();
        probe.on_sent(Psn::new(1), true, at(50_000));
        probe.on_progress(Psn::new(2), false, at(90_000));
        assert_eq!(probe.wait(), 3_000_000);
    }
}
