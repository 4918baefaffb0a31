//! What the engine's lock protects: the adapter, its link, and where events go.

use std::{collections::BTreeMap, io, sync::Arc};

use roce_transport::{
    adapter::{Adapter, TransmitBuffer},
    event::Event,
    time::Instant,
    wire::{IcrcMatch, Ident, NetHeader, verify_icrc},
    work::CqId,
};

use crate::{
    clock,
    link::{Direction, Link, Observed, Observer},
    verbs::{AsyncQueue, CqWaker},
};

/// Bytes built before they are sent: more than one full run, little enough to stay in the cache.
const TRANSMIT_BUFFER: usize = 256 << 10;
/// Batches taken from the link in one go before others get the lock.
const ROUNDS: usize = 16;

/// Totals of a link since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Calls that sent something.
    pub send_calls: u64,
    /// Runs of datagrams handed to the link.
    pub sent_runs: u64,
    /// Calls in which something could not be sent.
    pub send_errors: u64,
    /// What the last of them said.
    pub last_send_error: Option<String>,
    /// Calls that could not read the link.
    pub receive_errors: u64,
}

/// Where events go: completion queues by their name, and the context's queue for the rest.
pub(crate) struct Wakers {
    pub(crate) completions: BTreeMap<CqId, Arc<CqWaker>>,
    pub(crate) events: Arc<AsyncQueue>,
}

pub(crate) struct Shard {
    adapter: Adapter,
    link: Box<dyn Link>,
    observer: Option<Box<dyn Observer>>,
    pub(crate) wakers: Wakers,
    pub(crate) link_counters: LinkCounters,
    buffer: TransmitBuffer,
}

impl Shard {
    pub(super) fn new(adapter: Adapter, link: Box<dyn Link>, observer: Option<Box<dyn Observer>>, wakers: Wakers) -> Self {
        let buffer = TransmitBuffer::new(TRANSMIT_BUFFER, link.limits());
        Self { adapter, link, observer, wakers, link_counters: LinkCounters::default(), buffer }
    }

    pub(crate) const fn adapter(&mut self) -> &mut Adapter {
        &mut self.adapter
    }

    /// The adapter and its link, for what concerns both.
    pub(crate) fn adapter_and_link(&mut self) -> (&mut Adapter, &mut dyn Link) {
        (&mut self.adapter, &mut *self.link)
    }

    /// Receives, handles, sends and tells, until there is nothing more or others should have a turn. Returns how many
    /// messages of the link were received.
    pub(super) fn serve(&mut self, now: Instant) -> usize {
        let mut received = 0;
        for _ in 0..ROUNDS {
            let batch = self.receive(now);
            received += batch;
            self.serve_timers(now);
            if batch == 0 {
                break;
            }
        }
        received
    }

    /// Does what is due without looking at the link.
    pub(super) fn serve_timers(&mut self, now: Instant) {
        self.adapter.handle_timeout(now);
        self.transmit(now);
    }

    /// When it wants to be served although nothing has arrived.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        [self.adapter.poll_timeout(), self.link.deadline()].into_iter().flatten().min()
    }

    fn receive(&mut self, now: Instant) -> usize {
        let Self { adapter, link, observer, .. } = self;
        let result = link.receive(now, &mut |net, bytes| {
            let disposition = adapter.handle_datagram(now, net, bytes);
            if let Some(observer) = observer {
                observer.observe(&Observed {
                    at: clock::wall(now),
                    direction: Direction::Received,
                    net: &identified(net, bytes),
                    bytes,
                    disposition: Some(disposition),
                });
            }
        });
        result.unwrap_or_else(|_| {
            self.link_counters.receive_errors += 1;
            0
        })
    }

    /// Sends everything that is due and tells what has happened.
    pub(super) fn transmit(&mut self, now: Instant) {
        loop {
            self.buffer.clear();
            self.adapter.poll_transmit(now, &mut self.buffer);
            if self.buffer.is_empty() {
                break;
            }
            if let Some(observer) = &mut self.observer {
                let at = clock::wall(now);
                for (net, bytes) in self.buffer.datagrams() {
                    observer.observe(&Observed { at, direction: Direction::Sent, net: &net, bytes, disposition: None });
                }
            }
            self.link_counters.send_calls += 1;
            self.link_counters.sent_runs += self.buffer.runs().len() as u64;
            if let Err(error) = self.link.send(now, self.buffer.bytes(), self.buffer.runs()) {
                self.note_send_error(&error);
            }
        }
        while let Some(event) = self.adapter.poll_event() {
            match event {
                Event::Completion(id) => {
                    if let Some(waker) = self.wakers.completions.get(&id) {
                        waker.wake();
                    }
                }
                other => self.wakers.events.push(other),
            }
        }
    }

    fn note_send_error(&mut self, error: &io::Error) {
        self.link_counters.send_errors += 1;
        self.link_counters.last_send_error = Some(error.to_string());
    }
}

/// The network header with the identification that makes the ICRC right, where the link could only guess it.
fn identified(net: &NetHeader, bytes: &[u8]) -> NetHeader {
    let ident = match (verify_icrc(net, bytes), net.ident) {
        (Some(IcrcMatch::Solved { id, dont_fragment }), _) => Ident::Known { id, dont_fragment },
        (_, ident) => ident,
    };
    NetHeader { ident, ..*net }
}
