//! Runs on their way from the adapter to the link.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use roce_transport::{
    adapter::{Adapter, Transmit, TransmitBuffer},
    time::Instant,
    wire::PACKET_MAX,
};
use rustix::event::epoll;

use crate::{cancel::Uncancelled, link::Link};

/// Bytes built before they are sent: two full runs of the largest packets, little enough to stay in
/// the cache. A packet more would be a run of its own.
const CAPACITY: usize = 2 * 15 * PACKET_MAX;
/// Number of runs that the link is offered at once, so that many small ones do not take long.
const PORTION: usize = 16;
/// Time between two attempts to send to a link that does not show when it has room.
const RETRY: Duration = Duration::from_millis(1);

/// One transmit buffer: what the link has not taken of it stays, in order, and nothing is built
/// behind it.
pub(super) struct Outgoing {
    buffer: TransmitBuffer,
    /// Number of its runs that the link has taken.
    taken: usize,
    /// True if the adapter may have packets that found no room in the buffer.
    has_more: bool,
    /// Set while the link is full.
    blocked: Option<Blocked>,
    /// Epoll descriptor of those who sleep until there is something to do.
    sockets: Arc<OwnedFd>,
}

/// What a full link is waited for by.
enum Blocked {
    /// A copy of its descriptor, in the epoll descriptor until it is writable. A copy, because the
    /// original may be there to be read, and may be closed.
    Writable(OwnedFd),
    /// It is tried again at this time.
    Until(Instant),
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
            buffer: TransmitBuffer::new(CAPACITY, link.limits()),
            taken: 0,
            has_more: false,
            blocked: None,
            sockets,
        }
    }

    /// True if there is something to send and the link is not known to be full.
    pub(super) fn is_due(&self) -> bool {
        self.blocked.is_none() && (self.has_more || !self.rest().is_empty())
    }

    /// True if the link is full.
    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Time at which it is to be sent although no descriptor says so.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.blocked {
            Some(Blocked::Until(due)) => Some(due),
            Some(Blocked::Writable(_)) => None,
            None => self.is_due().then_some(Instant::ZERO),
        }
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

    pub(super) const fn buffer(&self) -> &TransmitBuffer {
        &self.buffer
    }

    /// Offers the next runs to the link.
    pub(super) fn offer(&mut self, now: Instant, link: &mut dyn Link) -> Offer {
        let rest = self.rest();
        let portion = &rest[..rest.len().min(PORTION)];
        if portion.is_empty() {
            return Offer::Nothing;
        }
        match link.send(now, self.buffer.bytes(), portion) {
            Ok(0) => {
                self.wait(now, link);
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
        (self.taken, self.blocked) = (0, None);
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
        if let Some(Blocked::Writable(descriptor)) = self.blocked.take() {
            let _uncancelled = Uncancelled::begin(); // which closes it
            let _ = epoll::delete(&self.sockets, &descriptor);
        }
    }

    fn wait(&mut self, now: Instant, link: &dyn Link) {
        if matches!(self.blocked, Some(Blocked::Writable(_))) {
            return;
        }
        let watched = link.blocked().and_then(|descriptor| {
            let copy = descriptor.try_clone_to_owned().ok()?;
            let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::OUT);
            epoll::add(&self.sockets, &copy, data, flags).ok()?;
            Some(Blocked::Writable(copy))
        });
        self.blocked = Some(watched.unwrap_or(Blocked::Until(now.plus(RETRY))));
    }
}
