//! Congestion notifications to a peer (annex A17.9).
//!
//! A switch marks packets instead of dropping them; the receiver of a marked one tells its sender
//! with a congestion notification packet. It also does so when its host's receive buffer fills
//! ([`DatagramMeta::congested`](crate::wire::DatagramMeta::congested)). Datagram queue pairs count
//! marks but send no notification: each datagram may come from another sender, so there is no flow
//! to slow down.
//!
//! A notified sender slows down: [`Rate`](crate::congestion::Rate).

use core::{convert::Infallible, time::Duration};

use super::{
    common::Common,
    info::CongestionCounters,
    packet::{Built, OutgoingPacket},
};
use crate::{
    psn::Psn,
    time::Instant,
    wire::{Ext, Headers, Opcode},
};

/// The traffic class of a notification: class selector 6, so that it overtakes what it is about.
const TRAFFIC_CLASS: u8 = 0xC2;

/// Bytes that follow the BTH of a notification; all of them zero.
const PAYLOAD: usize = 16;

/// State of congestion notification: whether one is due, and counters.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    due: bool,
    quiet_until: Instant,
    /// Time of the peer's last notification that counted.
    notified: Option<Instant>,
    counters: CongestionCounters,
}

impl Congestion {
    pub(super) const fn counters(&self) -> CongestionCounters {
        self.counters
    }

    /// Owes nothing any more.
    pub(super) const fn forget(&mut self) {
        self.due = false;
        self.quiet_until = Instant::ZERO;
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The peer has sent a notification. Returns false if the one before came less than `interval`
    /// ago: no adapter sends them so fast.
    pub(super) fn on_cnp(&mut self, now: Instant, interval: Duration) -> bool {
        self.counters.cnp_received += 1;
        let counts = self.notified.is_none_or(|last| now.since(last) >= interval);
        if counts {
            self.notified = Some(now);
        }
        counts
    }

    /// A packet arrived marked.
    pub(super) const fn count_mark(&mut self) {
        self.counters.ecn_marked += 1;
    }

    /// The sender of a packet is to hear that it met congestion, at most once in `interval`. (A
    /// datagram queue pair never asks what it owes.)
    pub(super) fn owe(&mut self, now: Instant, interval: Duration) {
        if now >= self.quiet_until {
            self.due = true;
            self.quiet_until = now.plus(interval);
        }
    }

    /// True if a notification is due.
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// Writes the notification that is due, if any, to the start of `slot`.
    pub(super) fn build(&mut self, common: &Common, slot: &mut [u8]) -> Option<Built> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        self.counters.cnp_sent += 1;
        let mut bth = common.bth(Opcode::CNP, Psn::new(0));
        bth.mig_req = false;
        bth.becn = true;
        let outgoing = OutgoingPacket { headers: Headers::built(bth, Ext::None), payload: PAYLOAD };
        let Ok(length) = outgoing.write::<Infallible>(slot, |payload| {
            payload.fill(0);
            Ok(())
        });
        Some(Built { traffic_class: Some(TRAFFIC_CLASS), ..Built::new(length) })
    }
}
