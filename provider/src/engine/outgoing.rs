//! Runs on their way from the adapter to the link.

use std::{io, os::fd::OwnedFd, sync::Arc};

use roce_transport::{
    adapter::{Adapter, Transmit, TransmitBuffer},
    time::Instant,
    wire::PACKET_MAX,
};

use super::room::Room;
use crate::link::Link;

/// Bytes of a full run of the largest packets. A packet more would be a run of its own.
const RUN: usize = 15 * PACKET_MAX;
/// Bytes built before they are sent with a call of the system: little enough to stay in the cache
/// of a processor, and to be sent soon.
const BY_CALL: usize = 64 * PACKET_MAX;
/// The same where they go through memory: so that the reader has some while more is built.
const BY_MEMORY: usize = RUN;
/// Number of runs that the link is offered at once, so that many small ones do not take long.
const PORTION: usize = 16;

/// One transmit buffer: what the link has not taken of it stays, in order, and nothing is built
/// behind it.
pub(super) struct Outgoing {
    buffer: TransmitBuffer,
    /// Number of its runs that the link has taken.
    taken: usize,
    /// True if the adapter may have packets that found no room in the buffer.
    has_more: bool,
    room: Room,
}

/// Result of offering runs to a link.
pub(super) enum Offer {
    /// It took so many.
    Taken(usize),
    /// It has no room.
    Full,
    /// The first is lost.
    Lost(io::Error),
    /// There are none.
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

    /// True if there is something to send and the link is not known to be full.
    pub(super) fn is_due(&self) -> bool {
        !self.room.is_blocked() && (self.has_more || !self.rest().is_empty())
    }

    /// True if the link is full.
    pub(super) const fn is_blocked(&self) -> bool {
        self.room.is_blocked()
    }

    /// Time at which it is to be sent although no descriptor says so.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.room.deadline(self.is_due())
    }

    /// Has the adapter build what is due. Returns false if there is nothing new: a buffer that the
    /// link has not taken yet comes first, and has its own turn.
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

    /// The link has taken runs with a call of the system, or without.
    pub(super) fn record_sent(&mut self, by_call: bool) {
        self.buffer.set_bound(if by_call { BY_CALL } else { BY_MEMORY });
    }

    /// The built datagrams, with all ICRCs.
    pub(super) fn sealed(&mut self) -> &TransmitBuffer {
        self.buffer.seal_all();
        &self.buffer
    }

    /// Offers the next runs to the link.
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

    /// Forgets what has not been sent, without touching the epoll descriptor, which the child of a
    /// fork shares with its parent.
    pub(super) fn abandon(&mut self) {
        self.buffer.clear();
        self.taken = 0;
        self.room.abandon();
    }

    /// Loses what has not been sent, as a port does that is down.
    pub(super) fn lose(&mut self) {
        self.taken = self.buffer.runs().len();
    }

    fn rest(&self) -> &[Transmit] {
        self.buffer.runs().get(self.taken..).unwrap_or_default()
    }

    fn advance(&mut self, count: usize) {
        self.taken += count;
        self.room.found();
    }
}
