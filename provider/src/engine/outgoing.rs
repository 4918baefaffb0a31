use std::{io, os::fd::OwnedFd, sync::Arc};

use roce_transport::{
    adapter::{Adapter, Transmit, TransmitBuffer},
    time::Instant,
    wire::PACKET_MAX,
};

use super::room::Room;
use crate::link::Link;

/// Bytes of a full run of the largest packets.
const RUN: usize = 15 * PACKET_MAX;
/// Bytes built per send call: few enough for the cache, and for an early send.
const BY_CALL: usize = 64 * PACKET_MAX;
/// Bytes built through memory: the reader works while more is built.
const BY_MEMORY: usize = RUN;
/// Runs per offer: bounds the time of many small ones.
const PORTION: usize = 16;

/// Transmit buffer. Untaken runs keep their order; nothing is built behind them.
pub(super) struct Outgoing {
    buffer: TransmitBuffer,
    /// Runs taken by the link.
    taken: usize,
    /// Packets may remain that did not fit.
    has_more: bool,
    room: Room,
}

pub(super) enum Offer {
    Taken(usize),
    Full,
    /// The first run is lost.
    Lost(io::Error),
    Nothing,
}

impl Outgoing {
    pub(super) fn new(link: &dyn Link, sockets: Arc<OwnedFd>) -> Self {
        Self {
            buffer: TransmitBuffer::unsealed(BY_CALL, link.limits()),
            taken: 0,
            has_more: false,
            room: Room::new(sockets),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        !self.room.is_blocked() && (self.has_more || !self.rest().is_empty())
    }

    pub(super) const fn is_blocked(&self) -> bool {
        self.room.is_blocked()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.room.deadline(self.is_due())
    }

    /// Builds due packets once all runs are taken; false if nothing is new.
    pub(super) fn build(&mut self, now: Instant, adapter: &mut Adapter) -> bool {
        if !self.rest().is_empty() {
            self.has_more = true;
            return false;
        }
        self.buffer.clear();
        self.taken = 0;
        adapter.poll_transmit(now, &mut self.buffer);
        self.has_more = self.buffer.may_have_more();
        !self.buffer.is_empty()
    }

    pub(super) fn record_sent(&mut self, by_call: bool) {
        self.buffer.set_bound(if by_call { BY_CALL } else { BY_MEMORY });
    }

    /// Built datagrams with their ICRCs.
    pub(super) fn sealed(&mut self) -> &TransmitBuffer {
        self.buffer.seal_all();
        &self.buffer
    }

    pub(super) fn offer(&mut self, now: Instant, link: &mut dyn Link) -> Offer {
        let end = self.buffer.runs().len().min(self.taken + PORTION);
        for index in self.taken..end {
            if link.needs_icrc(self.buffer.bytes(), &self.buffer.runs()[index]) {
                self.buffer.seal(index);
            }
        }
        let portion = &self.buffer.runs()[self.taken..end];
        if portion.is_empty() {
            return Offer::Nothing;
        }
        match link.send(now, self.buffer.bytes(), portion) {
            Ok(0) => {
                self.room.wait(now, link.blocked());
                Offer::Full
            }
            Ok(count) => {
                let count = count.min(portion.len());
                self.advance(count);
                Offer::Taken(count)
            }
            Err(error) => {
                self.advance(1);
                Offer::Lost(error)
            }
        }
    }

    /// Drops unsent runs of a replaced link.
    pub(super) fn abandon(&mut self) {
        self.buffer.clear();
        self.taken = 0;
        self.room.abandon();
    }

    pub(super) fn lose(&mut self) {
        self.taken = self.buffer.runs().len();
    }

    fn rest(&self) -> &[Transmit] {
        self.buffer.runs().get(self.taken..).unwrap_or_default()
    }

    fn advance(&mut self, count: usize) {
        self.taken += count;
        self.room.unblock();
    }
}
