//! Telling a peer that its packets meet congestion (annex A17.9).
//!
//! A switch marks packets instead of dropping them; the receiver of a marked one tells its sender with a congestion notification
//! packet. What a sender does about it is not part of this transport yet: it counts them.

use core::{convert::Infallible, time::Duration};

use super::{Built, Outgoing, common::Common};
use crate::{
    gids::Path,
    psn::Psn,
    time::Instant,
    wire::{Bth, Ext, Headers, Opcode},
};

/// A peer is told at most once in this time, as network adapters do.
const INTERVAL: Duration = Duration::from_micros(50);

/// The traffic class of a notification: class selector 6, so that it overtakes what it is about.
const TRAFFIC_CLASS: u8 = 0xC2;

/// Bytes that follow the BTH of a notification; all of them zero.
const PAYLOAD: usize = 16;

/// What a queue pair owes its peer.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    due: bool,
    quiet_until: Instant,
}

impl Congestion {
    /// A packet with data arrived marked.
    pub(super) fn note(&mut self, now: Instant) {
        if now >= self.quiet_until {
            self.due = true;
            self.quiet_until = now.plus(INTERVAL);
        }
    }

    /// Writes the notification that is due, if any, to the start of `slot`.
    pub(super) fn build(&mut self, common: &Common, path: Path, slot: &mut [u8]) -> Option<Built> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        let mut bth = Bth::new(Opcode::CNP, common.dest_qpn, Psn::new(0));
        bth.mig_req = false;
        bth.becn = true;
        let outgoing = Outgoing { headers: Headers::built(bth, Ext::None), payload: PAYLOAD };
        let Ok(length) = outgoing.write::<Infallible>(slot, |payload| {
            payload.fill(0);
            Ok(())
        });
        Some(Built::new(length, Path { traffic_class: TRAFFIC_CLASS, ..path }))
    }
}
