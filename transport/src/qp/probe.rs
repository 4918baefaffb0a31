//! Tail-loss probes: retransmit the last packet after a few round trips without a response.
//!
//! A NAK needs a later packet: a lost tail would wait for the acknowledge timeout, 67 ms or more in
//! most programs. A probe changes neither retry counter nor acknowledge timer: errors keep their
//! time (9.9.2.4.1).
//!
//! A responder with a gap sends one NAK (9.7.5.2.8), then drops a repeated last packet silently.
//! With a known gap, or after an unanswered probe, the oldest packet is sent; if its
//! acknowledgement covers no more, later packets were dropped.
//!
//! Round trips are smoothed as in RFC 6298, without retransmissions (Karn's rule).

use crate::{psn::Psn, time::Instant};

/// Consecutive probes without a response.
const MOST: u32 = 3;
/// Doublings of the wait.
const LONGEST: u32 = 6;
/// Minimum, in ns: a sleeping peer thread's wake-up.
const SHORTEST: u64 = 200_000;
/// Wait without a sample, in ns.
const UNMEASURED: u64 = 10_000_000;

#[derive(Debug, Default)]
pub(crate) struct Probe {
    round_trip: Option<RoundTrip>,
    timed: Option<(Psn, Instant)>,
    sent: u32,
    doubled: u32,
    deadline: Option<Instant>,
    /// The probe has not left yet.
    is_due: bool,
    /// Oldest packet, if probed last.
    repeated: Option<Psn>,
}

/// In ns.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: u64,
    variation: u64,
}

impl Probe {
    /// Records a packet that needs a response; `again` if retransmitted.
    pub(crate) fn on_sent(&mut self, psn: Psn, again: bool, now: Instant) {
        if again {
            self.timed = None;
        } else if self.timed.is_none() {
            self.timed = Some((psn, now));
        }
        self.is_due = false;
        self.start(now);
    }

    /// Handles acknowledgement before `end`; `waits`: more is due.
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

    pub(crate) const fn stop(&mut self) {
        self.deadline = None;
        self.is_due = false;
    }

    /// Drops the sample, too: the packet is retransmitted.
    pub(crate) const fn on_loss(&mut self) {
        self.timed = None;
        self.stop();
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        let becomes_due = self.deadline.is_some_and(|deadline| deadline <= now);
        if becomes_due {
            self.deadline = None;
            self.is_due = true;
        }
        becomes_due
    }

    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }

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

    pub(crate) const fn is_first(&self) -> bool {
        self.sent == 1
    }

    pub(crate) const fn record_repeated(&mut self, oldest: Psn) {
        self.repeated = Some(oldest);
    }

    pub(crate) fn has_repeated(&self, psn: Psn) -> bool {
        self.repeated == Some(psn)
    }

    fn start(&mut self, now: Instant) {
        let wait = self.wait() << self.doubled;
        self.deadline =
            (self.sent < MOST).then(|| Instant::from_nanos(now.as_nanos().saturating_add(wait)));
    }

    /// In ns.
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
