//! Congestion notifications to a peer (annex A17.9), for ECN marks and a filling receive buffer
//! ([`DatagramMeta::congested`](crate::wire::DatagramMeta::congested)).
//!
//! UD only counts marks: each datagram may have another sender.

use core::{convert::Infallible, time::Duration};

use super::{
    attr::CongestionCounters,
    common::Common,
    packet::{Built, OutgoingPacket},
};
use crate::{
    psn::Psn,
    time::Instant,
    wire::{Ext, Headers, Opcode},
};

/// Class selector 6: CNPs overtake congested packets.
const TRAFFIC_CLASS: u8 = 0xC2;

/// Zero bytes after the BTH.
const PAYLOAD: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Congestion {
    pub(super) due: bool,
    quiet_until: Instant,
    /// The peer's last effective CNP.
    notified: Option<Instant>,
    pub(super) counters: CongestionCounters,
}

impl Congestion {
    pub(super) const fn forget(&mut self) {
        self.due = false;
        self.quiet_until = Instant::ZERO;
    }

    /// Returns false within `interval` of the last CNP: adapters send none that fast.
    pub(super) fn on_cnp(&mut self, now: Instant, interval: Duration) -> bool {
        self.counters.cnp_received += 1;
        let counts = self.notified.is_none_or(|last| now.since(last) >= interval);
        if counts {
            self.notified = Some(now);
        }
        counts
    }

    /// Makes a CNP due, once per `interval`; UD never sends it.
    pub(super) fn schedule_cnp(&mut self, now: Instant, interval: Duration) {
        if now >= self.quiet_until {
            self.due = true;
            self.quiet_until = now.plus(interval);
        }
    }

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
