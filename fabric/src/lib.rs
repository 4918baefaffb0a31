//! A simulated network with faults, rates and receive buffers, deterministic by seed.
//!
//! A [`Network`] has no clock and no thread: its owner calls [`send`](Network::send) and
//! [`poll_deliver`](Network::poll_deliver). [`Faults`] also works in front of a real link.
//!
//! ```
//! use std::time::Duration;
//! use roce_fabric::{Conditions, Network};
//! use roce_transport::{time::Instant, wire::{FrameFields, Ident, NetHeader}};
//!
//! let conditions = Conditions { delay: Duration::from_micros(5), ..Conditions::default() };
//! let mut network = Network::new(conditions, 1);
//! let net = NetHeader {
//!     src: [10, 0, 0, 1].into(),
//!     dst: [10, 0, 0, 2].into(),
//!     src_port: 49152,
//!     traffic_class: 0,
//!     hop_limit: 64,
//!     ident: Ident::Known { id: 0, dont_fragment: true },
//!     frame: FrameFields::default(),
//! };
//! network.send(Instant::ZERO, &net, b"payload");
//! let due = network.poll_timeout().unwrap();
//! assert_eq!(due, Instant::ZERO.plus(Duration::from_micros(5)));
//! assert!(network.poll_deliver(Instant::ZERO).is_none());
//! assert_eq!(network.poll_deliver(due).unwrap().bytes, b"payload");
//! ```

pub mod clause;
mod faults;
mod queue;
mod rule;
mod syntax;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr};

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use roce_transport::{
    time::Instant,
    wire::{Datagram, DatagramMeta, Ident, NetHeader},
};

pub use clause::FaultSyntaxError;
pub use faults::{Conditions, FaultPlan, Faults, RuleId, Verdict};
pub use queue::{Bottleneck, Marking, QueueCounters, Receiver};
pub use rule::{Action, Corruption, Direction, Frequency, Kind, Matcher, Rule};

use clause::happens;
use queue::{Queues, in_buffer, is_ect, on_wire, serialisation};

/// Receiver's knowledge of the IPv4 identification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Identification {
    /// Exact, as from a raw socket.
    #[default]
    Known,
    /// Right, as from a UDP socket with GRO.
    Guessed,
    /// None, as from a UDP socket: the ICRC check is weaker.
    Hidden,
}

/// An arrived datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Network header.
    pub net: NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: Vec<u8>,
    /// Sequence number of [`Network::send`]; a duplicate has its original's.
    pub number: u64,
    /// Finds its receiver not ready.
    pub not_ready: bool,
    /// Met a filling receive buffer.
    pub congested: bool,
}

impl Delivery {
    /// Datagram for the receiver.
    #[must_use]
    pub fn datagram(&self) -> Datagram<'_> {
        let &Self { not_ready, congested, .. } = self;
        let meta = DatagramMeta { not_ready, congested, checksum_verified: false };
        Datagram { net: &self.net, bytes: &self.bytes, meta }
    }
}

/// A network of nodes, identified by address.
#[derive(Debug)]
pub struct Network {
    faults: Faults,
    identification: Identification,
    ports: Queues,
    receivers: Queues,
    /// For marks: draws do not shift the faults.
    marks: ChaCha8Rng,
    /// By due time and order of sending; true after the receive buffer.
    in_flight: BTreeMap<(Instant, u64), (Delivery, bool)>,
    sent: u64,
    /// Order of datagrams due at the same time.
    queued: u64,
}

impl Network {
    /// Same seed and calls, same faults.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self::with_plan(FaultPlan { conditions, rules: Vec::new() }, seed)
    }

    /// Network with conditions and rules.
    #[must_use]
    pub fn with_plan(plan: FaultPlan, seed: u64) -> Self {
        let mut marks = ChaCha8Rng::seed_from_u64(seed);
        marks.set_stream(1);
        Self {
            faults: Faults::new(plan, seed),
            identification: Identification::default(),
            ports: Queues::default(),
            receivers: Queues::default(),
            marks,
            in_flight: BTreeMap::new(),
            sent: 0,
            queued: 0,
        }
    }

    /// Sets the receivers' [`Identification`].
    pub const fn set_identification(&mut self, identification: Identification) {
        self.identification = identification;
    }

    /// Faults of the network.
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Faults, to change.
    pub const fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Counters of the port toward `to`; `None`: the sum of all.
    #[must_use]
    pub fn port(&self, to: Option<IpAddr>) -> QueueCounters {
        self.ports.counters(to)
    }

    /// Counters of the receive buffer at `at`; `None`: the sum of all.
    #[must_use]
    pub fn receive_buffer(&self, at: Option<IpAddr>) -> QueueCounters {
        self.receivers.counters(at)
    }

    /// Sends a UDP payload. Returns the verdict, port included.
    pub fn send(&mut self, now: Instant, net: &NetHeader, bytes: &[u8]) -> Verdict {
        self.send_with(now, net, bytes, |_| {})
    }

    /// As [`send`](Self::send), with `change` applied before the port. Other verdicts do not
    /// change.
    pub fn send_with(
        &mut self,
        now: Instant,
        net: &NetHeader,
        bytes: &[u8],
        change: impl FnOnce(&mut Verdict),
    ) -> Verdict {
        let number = self.sent;
        self.sent += 1;
        let mut judged = self.faults.judge(net, bytes);
        change(&mut judged);
        let verdict = self.through_port(now, net, bytes.len(), judged);
        let mut net = *net;
        if verdict.congestion {
            net.traffic_class |= 3;
        }
        for delay in verdict.delays() {
            let mut bytes = bytes.to_vec();
            if let Some(corruption) = verdict.corruption {
                corruption.apply(&mut bytes);
            }
            let not_ready = verdict.not_ready;
            let datagram = Delivery { net, bytes, number, not_ready, congested: false };
            self.put(now.plus(delay), datagram, false);
        }
        verdict
    }

    fn through_port(
        &mut self,
        now: Instant,
        net: &NetHeader,
        payload: usize,
        mut verdict: Verdict,
    ) -> Verdict {
        let Some(bottleneck) = self.faults.conditions().bottleneck else { return verdict };
        if verdict.lost {
            return verdict;
        }
        let length = on_wire(net, payload);
        let service = serialisation(length, bottleneck.rate);
        let port = self.ports.toward(now, (!bottleneck.shared).then_some(net.dst));
        let found = port.held(now);
        let mut enter = || port.enter(now, service, length, bottleneck.queue);
        let Some(leaves) = enter() else { return Verdict { lost: true, ..verdict } };
        verdict.delay = verdict.delay.saturating_add(leaves.since(now));
        verdict.copy = verdict
            .copy
            .and_then(|copy| enter().map(|leaves| copy.saturating_add(leaves.since(now))));
        if let Some(marking) = bottleneck.marking.filter(|_| is_ect(net))
            && happens(&mut self.marks, marking.probability(found))
        {
            port.counters.marked += 1;
            verdict.congestion = true;
        }
        verdict
    }

    fn put(&mut self, due: Instant, datagram: Delivery, received: bool) {
        self.in_flight.insert((due, self.queued), (datagram, received));
        self.queued += 1;
    }

    /// Next datagram that has arrived by `now`.
    pub fn poll_deliver(&mut self, now: Instant) -> Option<Delivery> {
        while self.poll_timeout()? <= now {
            let ((due, _), (mut datagram, received)) = self.in_flight.pop_first()?;
            match self.faults.conditions().receiver.filter(|_| !received) {
                // buffers fill at arrival, not at the poll
                Some(receiver) => {
                    let buffer = self.receivers.toward(due, Some(datagram.net.dst));
                    let (service, bytes) =
                        (receiver.time.as_nanos() * 1000, in_buffer(datagram.bytes.len()));
                    // as a link that reads its socket's fill level
                    datagram.congested = buffer.held(due) + bytes > receiver.buffer / 4 * 3;
                    if let Some(taken) = buffer.enter(due, service, bytes, receiver.buffer) {
                        self.put(taken, datagram, true);
                    }
                }
                None => return Some(self.hide(datagram)),
            }
        }
        None
    }

    fn hide(&self, mut datagram: Delivery) -> Delivery {
        if let (Ident::Known { id, .. }, true) = (datagram.net.ident, datagram.net.src.is_ipv4()) {
            match self.identification {
                Identification::Known => {}
                Identification::Guessed => datagram.net.ident = Ident::Likely(id),
                Identification::Hidden => datagram.net.ident = Ident::Likely(0),
            }
        }
        datagram
    }

    /// Time when the next datagram arrives, or reaches a receive buffer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((due, _), _)| *due)
    }

    /// Number of the next datagram.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.sent
    }

    /// Datagrams in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
