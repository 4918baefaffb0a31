//! State under the engine's lock: the adapter, its link, and the sinks of events.

use std::io;

use roce_transport::{
    adapter::{Adapter, TransmitBuffer},
    event::Event,
    time::Instant,
};
use tracing::{debug, error, info, warn};

use super::{
    log::CounterLog,
    sink::{EventSink, Sinks},
};
use crate::{
    cancel::Uncancelled,
    clock,
    counters::LinkCounters,
    link::{BATCH, Direction, Link, Observed, Observer},
    port::{self, InterfaceState, TableChange, Watch},
};

/// Bytes built before they are sent: more than one full run, little enough to stay in the cache.
const TRANSMIT_BUFFER: usize = 256 << 10;
/// Batches taken from the link in one go before others get the lock.
const ROUNDS: usize = 16;

pub(crate) struct Shard {
    /// The device's name, for the log.
    name: String,
    adapter: Adapter,
    link: Box<dyn Link>,
    observer: Option<Box<dyn Observer>>,
    sinks: Sinks,
    pub(crate) link_counters: LinkCounters,
    log: CounterLog,
    buffer: TransmitBuffer,
    /// Calls in a row that could not read the link.
    failures: u32,
    /// Something may have been counted since the counters were published.
    pub(super) counted: bool,
    /// Earliest time of the next publication; `None`: they are not published.
    pub(super) publication: Option<Instant>,
    /// The background thread knows that there is something to publish.
    pub(super) told: bool,
}

/// Number of failed calls in a row after which the link counts as lost.
pub(crate) const LOST_AFTER: u32 = 64;

impl Shard {
    pub(super) fn new(
        name: String,
        adapter: Adapter,
        link: Box<dyn Link>,
        observer: Option<Box<dyn Observer>>,
        sinks: Sinks,
    ) -> Self {
        let buffer = TransmitBuffer::new(TRANSMIT_BUFFER, link.limits());
        let link_counters = LinkCounters::default();
        Self {
            name,
            adapter,
            link,
            observer,
            sinks,
            link_counters,
            log: CounterLog::default(),
            buffer,
            failures: 0,
            counted: false,
            publication: None,
            told: false,
        }
    }

    pub(crate) const fn adapter(&mut self) -> &mut Adapter {
        &mut self.adapter
    }

    /// The adapter and its link, for what concerns both.
    pub(crate) fn adapter_and_link(&mut self) -> (&mut Adapter, &mut dyn Link) {
        (&mut self.adapter, &mut *self.link)
    }

    /// The sink of this type.
    pub(crate) fn sink<S: EventSink + Default>(&mut self) -> &mut S {
        self.sinks.of()
    }

    /// The adapter, and the sink of this type.
    pub(crate) fn adapter_and_sink<S: EventSink + Default>(&mut self) -> (&mut Adapter, &mut S) {
        (&mut self.adapter, self.sinks.of())
    }

    /// The link's totals, those that it keeps itself among them.
    pub(crate) fn link_counters(&mut self) -> LinkCounters {
        let mut totals = self.link_counters.clone();
        if let Some(sharing) = self.link.sharing() {
            totals.shared_runs += sharing.shared_runs();
            totals.forwarded += sharing.forwarded();
        }
        totals
    }

    /// The adapter, its link, and the sink of this type.
    pub(crate) fn parts<S: EventSink + Default>(
        &mut self,
    ) -> (&mut Adapter, &mut dyn Link, &mut S) {
        (&mut self.adapter, &mut *self.link, self.sinks.of())
    }

    /// Receives, handles, sends and tells, until there is nothing more or others should have a
    /// turn. Returns how many messages of the link were received.
    pub(super) fn serve(&mut self, now: Instant) -> usize {
        let mut received = 0;
        for _ in 0..ROUNDS {
            let batch = self.receive(now);
            received += batch;
            self.serve_timers(now);
            if batch < BATCH {
                break;
            }
        }
        received
    }

    /// Does what is due without looking at the link.
    pub(super) fn serve_timers(&mut self, now: Instant) {
        self.adapter.handle_timeout(now);
        self.transmit(now);
        self.log.update(&self.name, self.adapter.counters());
    }

    /// Time at which it must be served although nothing has arrived.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        [self.adapter.poll_timeout(), self.link.deadline()].into_iter().flatten().min()
    }

    /// True if the link is lost for good.
    pub(super) const fn is_lost(&self) -> bool {
        self.failures >= LOST_AFTER
    }

    fn receive(&mut self, now: Instant) -> usize {
        if self.is_lost() {
            return 0;
        }
        let Self { adapter, link, observer, .. } = self;
        let _uncancelled = observer.as_ref().map(|_| Uncancelled::begin()); // it writes files
        let result = link.receive(now, &mut |datagram| {
            let receipt = adapter.handle_datagram(now, datagram);
            if let Some(observer) = observer {
                observer.observe(&Observed {
                    at: clock::wall(now),
                    direction: Direction::Received,
                    net: &receipt.identify(datagram),
                    bytes: datagram.bytes,
                    disposition: Some(receipt.disposition),
                });
            }
        });
        match result {
            Ok(received) => {
                self.failures = 0;
                self.counted |= received > 0;
                received
            }
            Err(error) => {
                debug!(device = self.name, %error, "the link cannot be read");
                self.counted = true;
                self.link_counters.receive_errors += 1;
                self.failures += 1;
                if self.is_lost() {
                    error!(device = self.name, %error, "the link is lost");
                    self.adapter.fail(now);
                }
                0
            }
        }
    }

    /// The port is as its interface is now. Returns whether the link has other descriptors than
    /// before.
    pub(super) fn follow(&mut self, state: &InterfaceState, watch: &Watch) -> bool {
        self.adapter.set_port(state.up, state.active_mtu());
        let mut table = self.adapter.gids().entries().to_vec();
        let TableChange { gone, new } = watch.follows.compare(&table, &state.addresses);
        for &address in &gone {
            info!(device = self.name, %address, "the interface has lost an address");
            self.link.remove_address(address);
            port::remove(&mut table, address);
        }
        let mut added = false;
        for address in new {
            let result = self.link.add_address(address, watch.interface());
            if result.is_ok() && port::insert(&mut table, address) {
                info!(device = self.name, %address, "the interface has a new address");
                added = true;
                continue;
            }
            self.link.remove_address(address);
            self.link_counters.bind_errors += 1;
            let error = result.err().map_or_else(
                || format!("no entry for {address} in the GID table"),
                |error| error.to_string(),
            );
            warn!(device = self.name, %address, error, "the address cannot be used");
            self.link_counters.last_bind_error = Some(error);
        }
        self.counted |= added || !gone.is_empty();
        self.adapter.set_gids(table);
        added
    }

    /// Time at which the counters are to be published.
    pub(super) fn publish_at(&self) -> Option<Instant> {
        self.publication.filter(|_| self.counted)
    }

    /// Replaces the link, and forgets its observer without dropping it.
    pub(super) fn lose_link(&mut self, instead: Box<dyn Link>) {
        self.link_counters = self.link_counters();
        self.link = instead;
        std::mem::forget(self.observer.take()); // what it has not written yet, the other copy writes
        self.publication = None;
    }

    /// Someone is about to sleep until the link's descriptors are readable. Returns whether there
    /// is nothing to receive.
    pub(super) fn park(&mut self) -> bool {
        self.link.park()
    }

    /// A thread that slept is awake again.
    pub(super) fn unpark(&mut self) {
        self.link.unpark();
    }

    pub(super) fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// Sends everything that is due and tells what has happened.
    pub(super) fn transmit(&mut self, now: Instant) {
        // what cannot be accepted is refused at once, so this comes before sending
        while let Some(event) = self.adapter.poll_cm_event() {
            let _uncancelled = Uncancelled::begin();
            self.sinks.on_cm_event(event, &mut self.adapter, now);
        }
        loop {
            self.buffer.clear();
            self.adapter.poll_transmit(now, &mut self.buffer);
            if self.buffer.is_empty() {
                break;
            }
            if let Some(observer) = &mut self.observer {
                let _uncancelled = Uncancelled::begin();
                let at = clock::wall(now);
                for (net, bytes) in self.buffer.datagrams() {
                    observer.observe(&Observed {
                        at,
                        direction: Direction::Sent,
                        net: &net,
                        bytes,
                        disposition: None,
                    });
                }
            }
            self.counted = true;
            self.link_counters.send_calls += 1;
            self.link_counters.sent_runs += self.buffer.runs().len() as u64;
            if let Err(error) = self.link.send(now, self.buffer.bytes(), self.buffer.runs()) {
                self.note_send_error(&error);
            }
            if !self.buffer.is_full() {
                break;
            }
        }
        while let Some(event) = self.adapter.poll_event() {
            let rare = !matches!(event, Event::Completion(_));
            let _uncancelled = rare.then(Uncancelled::begin);
            if rare {
                debug!(device = self.name, "{event}");
            }
            self.sinks.on_event(event, &mut self.adapter, &mut *self.link);
        }
    }

    fn note_send_error(&mut self, error: &io::Error) {
        debug!(device = self.name, %error, "something could not be sent");
        self.link_counters.send_errors += 1;
        self.link_counters.last_send_error = Some(error.to_string());
    }
}
