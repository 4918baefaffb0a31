//! State under an engine's lock.

use roce_transport::{adapter::TransmitLimits, time::Instant};

use super::{
    publication::Publication,
    schedule::cork::{Cork, Load, Next, SendPath},
    shared_cork::SharedCork,
    sleep::{Omission, System, omits},
};
use crate::ring::runs::Link;

pub(super) struct Shard {
    link: Link,
    /// Runs and their program threads.
    awaited: Vec<(u64, usize)>,
    /// Timer too late for any thread.
    pub(super) rare: Option<Instant>,
    pub(super) timer: Option<(Instant, usize)>,
    pub(super) publication: Publication,
    pub(super) reader: Option<usize>,
    pub(super) cork: SharedCork,
    /// Thread that waits for posted requests to leave.
    pub(super) posted: Option<usize>,
    /// Thread that waits for the first arrival's acknowledgement to leave.
    pub(super) acknowledged: Option<usize>,
    system: System,
}

impl Shard {
    pub(super) fn new(link: Link, awaited: Vec<(u64, usize)>, system: System) -> Self {
        let (rare, timer, reader, publication) = (None, None, None, Publication::default());
        let limits = TransmitLimits { segments: 64, bytes: 65_487 };
        let mut cork = SharedCork::new(Cork::new(limits));
        cork.observer().record_sent(SendPath::Call);
        let (posted, acknowledged) = (None, None);
        Self { link, awaited, rare, timer, publication, reader, cork, posted, acknowledged, system }
    }

    pub(super) const fn record_timer(&mut self) {}

    pub(super) fn receive(&mut self) -> usize {
        let before = self.link.received();
        let system = &self.system;
        self.link.receive(|| system.take_ring_wakeup(), || system.ring_wakeup());
        let received = before..self.link.received();
        if !received.is_empty() {
            self.posted = self.posted.or(self.acknowledged.take());
        }
        for &(_, thread) in self.awaited.iter().filter(|(run, _)| received.contains(run)) {
            self.system.give(thread);
        }
        received.count()
    }

    pub(super) fn serve_timers(&mut self, now: Instant) {
        if let Some((_, thread)) = self.timer.take_if(|(due, _)| *due <= now) {
            self.system.give(thread);
        }
        self.transmit(now);
    }

    pub(super) fn transmit(&mut self, _now: Instant) {
        self.cork.change(Cork::leave);
        if let Some(thread) = self.posted.take() {
            self.system.give(thread);
        }
    }

    pub(super) fn is_corked(&self) -> bool {
        self.cork.is_corked()
    }

    pub(super) fn corks(&mut self, now: Instant, load: Load, polls: u64, next: Next) -> bool {
        self.cork.change(|cork| cork.post(now, load, polls, next))
    }

    pub(super) fn is_late(&mut self, now: Instant) -> bool {
        self.cork.observer().is_late(now)
    }

    pub(super) fn count_hold(&mut self, now: Instant) -> Instant {
        now
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_corked()
    }

    pub(super) fn is_lost(&self) -> bool {
        false
    }

    pub(super) fn lose(&mut self, _now: Instant) {}

    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let timer = self.timer.map(|(due, _)| due);
        timer.into_iter().chain(self.rare).min()
    }

    pub(super) fn publish(&mut self) {
        if let Some(thread) = self.reader.take() {
            self.system.give(thread);
        }
    }

    pub(super) fn park(&mut self) -> bool {
        omits(Omission::Park) || self.link.park() || omits(Omission::Look)
    }

    pub(super) fn unpark(&mut self) {
        self.link.unpark();
    }

    pub(super) const fn look(&self) {}
}
