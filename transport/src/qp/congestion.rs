//! Telling a peer that its packets meet congestion (annex A17.9).
//!
//! A switch marks packets instead of dropping them; the receiver of a marked one tells its sender with a congestion notification
//! packet. What a sender does about it is not part of this transport yet: it counts them.

use core::time::Duration;

use super::{Outgoing, common::Common};
use crate::{
    psn::Psn,
    time::Instant,
    wire::{Bth, Ext, Headers, Opcode},
};

/// A peer is told at most once in this time, as network adapters do.
const INTERVAL: Duration = Duration::from_micros(50);

/// The traffic class of a notification: class selector 6, so that it overtakes what it is about.
pub(super) const TRAFFIC_CLASS: u8 = 0xC2;

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

    /// The notification that is due, if any.
    pub(super) fn take(&mut self, common: &Common) -> Option<Outgoing> {
        core::mem::take(&mut self.due).then(|| {
            let mut bth = Bth::new(Opcode::CNP, common.dest_qpn, Psn::new(0));
            bth.mig_req = false;
            bth.becn = true;
            Outgoing { headers: Headers::built(bth, Ext::None), payload: PAYLOAD }
        })
    }
}
