//! A simulated network: loses, duplicates, delays, reorders, corrupts and marks datagrams as it is
//! told to, the same way for the same seed.
//!
//! A [`Network`] has no clock and no thread. Its owner hands in datagrams with
//! [`send`](Network::send) and takes out those that are due with
//! [`poll_deliver`](Network::poll_deliver), so that it runs in virtual time as well as in real
//! time. What is to go wrong stands apart in [`Faults`], which judges one datagram at a time and
//! works in front of a real link, too.
//!
//! ```
//! use std::time::Duration;
//! use roce_provider::fabric::{Conditions, Network};
//! use roce_transport::{time::Instant, wire::{Ident, NetHeader}};
//!
//! let mut network = Network::new(Conditions { delay: Duration::from_micros(5), ..Conditions::default() }, 1);
//! let net = NetHeader {
//!     src: [10, 0, 0, 1].into(),
//!     dst: [10, 0, 0, 2].into(),
//!     src_port: 49152,
//!     traffic_class: 0,
//!     hop_limit: 64,
//!     ident: Ident::Known { id: 0, dont_fragment: true },
//! };
//! network.send(Instant::ZERO, &net, b"payload");
//! let due = network.poll_timeout().unwrap();
//! assert_eq!(due, Instant::ZERO.plus(Duration::from_micros(5)));
//! assert!(network.poll_deliver(Instant::ZERO).is_none());
//! assert_eq!(network.poll_deliver(due).unwrap().bytes, b"payload");
//! ```

mod faults;
mod rule;
mod syntax;

use std::{cmp::Reverse, collections::BinaryHeap};

use roce_transport::{
    time::Instant,
    wire::{Datagram, DatagramMeta, Ident, NetHeader},
};

pub use faults::{Conditions, FaultPlan, Faults, RuleId, Verdict};
pub use rule::{Action, Corruption, Direction, Frequency, Kind, Matcher, Rule};
pub use syntax::FaultSyntaxError;

/// Knowledge that the receiver has of a datagram's IPv4 identification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Identification {
    /// Everything, as by a raw socket.
    #[default]
    Known,
    /// A right guess, as by a UDP socket that got a whole run of datagrams at once.
    Guessed,
    /// Nothing, as by a UDP socket that gets single datagrams. The receiver's check of the ICRC is
    /// weaker then.
    Hidden,
}

/// A datagram that has arrived. Its destination is `net.dst`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Network header.
    pub net: NetHeader,
    /// UDP payload: from the BTH to the ICRC.
    pub bytes: Vec<u8>,
    /// Number of the call of [`Network::send`] that sent it, counted from 0. A duplicate has the
    /// number of its original.
    pub number: u64,
    /// True if it is to find its receiver not ready.
    pub not_ready: bool,
    /// True if it has met a receive buffer that fills. No fault of the network does this: the
    /// receiver's side says so.
    pub congested: bool,
}

impl Delivery {
    /// The datagram as its receiver takes it.
    #[must_use]
    pub fn datagram(&self) -> Datagram<'_> {
        let &Self { not_ready, congested, .. } = self;
        let meta = DatagramMeta { not_ready, congested, checksum_verified: false };
        Datagram { net: &self.net, bytes: &self.bytes, meta }
    }
}

/// A network between any number of nodes, which it tells apart by their addresses. See the
/// [module's documentation](self).
#[derive(Debug)]
pub struct Network {
    faults: Faults,
    identification: Identification,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    sent: u64,
    /// Counts what was put into the queue, so that datagrams that are due at the same time keep
    /// their order.
    queued: u64,
}

impl Network {
    /// A network under these conditions. The same seed and the same calls give the same faults.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self::with_plan(FaultPlan { conditions, rules: Vec::new() }, seed)
    }

    /// A network under these conditions and rules.
    #[must_use]
    pub fn with_plan(plan: FaultPlan, seed: u64) -> Self {
        Self {
            faults: Faults::new(plan, seed),
            identification: Identification::default(),
            in_flight: BinaryHeap::new(),
            sent: 0,
            queued: 0,
        }
    }

    /// Sets what receivers are told of the IPv4 identification.
    pub const fn set_identification(&mut self, identification: Identification) {
        self.identification = identification;
    }

    /// The network's faults.
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The network's faults, to be changed from now on.
    pub const fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Takes a datagram from its sender; `bytes` is the UDP payload. Returns what was decided about
    /// it.
    pub fn send(&mut self, now: Instant, net: &NetHeader, bytes: &[u8]) -> Verdict {
        let number = self.sent;
        self.sent += 1;
        let verdict = self.faults.judge(now, net, bytes);
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
            self.in_flight.push(Reverse(InFlight {
                due: now.plus(delay),
                order: self.queued,
                datagram,
            }));
            self.queued += 1;
        }
        verdict
    }

    /// The next datagram that has arrived by `now`, if any.
    pub fn poll_deliver(&mut self, now: Instant) -> Option<Delivery> {
        if self.poll_timeout()? > now {
            return None;
        }
        let Reverse(InFlight { mut datagram, .. }) = self.in_flight.pop()?;
        if let (Ident::Known { id, .. }, true) = (datagram.net.ident, datagram.net.src.is_ipv4()) {
            match self.identification {
                Identification::Known => {}
                Identification::Guessed => datagram.net.ident = Ident::Likely(id),
                Identification::Hidden => datagram.net.ident = Ident::Likely(0),
            }
        }
        Some(datagram)
    }

    /// Time at which the next datagram arrives; `None` when none is on its way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(next)| next.due)
    }

    /// Datagrams on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

#[derive(Debug)]
struct InFlight {
    due: Instant,
    order: u64,
    datagram: Delivery,
}

impl InFlight {
    const fn key(&self) -> (Instant, u64) {
        (self.due, self.order)
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn net() -> NetHeader {
        NetHeader {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 49152,
            traffic_class: 2,
            hop_limit: 64,
            ident: Ident::Known { id: 3, dont_fragment: true },
        }
    }

    /// Sends `count` datagrams, 1 µs apart, and returns what arrives, with its time.
    fn run(mut network: Network, count: u32) -> Vec<(u64, Delivery)> {
        for i in 0..count {
            network.send(Instant::from_nanos(u64::from(i) * 1000), &net(), &i.to_be_bytes());
        }
        let mut arrived = Vec::new();
        while let Some(due) = network.poll_timeout() {
            arrived.extend(network.poll_deliver(due).map(|datagram| (due.as_nanos(), datagram)));
        }
        arrived
    }

    #[test]
    fn a_perfect_network_keeps_everything_and_its_order() {
        let arrived = run(Network::new(Conditions::default(), 1), 100);
        assert!(arrived.iter().enumerate().all(|(i, (at, datagram))| {
            *at == i as u64 * 1000
                && datagram.net == net()
                && datagram.bytes == (i as u32).to_be_bytes()
        }));
        assert_eq!(arrived.len(), 100);
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let conditions = Conditions {
            loss: 0.1,
            duplication: 0.1,
            reordering: 0.1,
            corruption: 0.1,
            ecn: 0.1,
            delay: Duration::from_micros(10),
            jitter: Duration::from_micros(3),
            ..Conditions::default()
        };
        let of = |seed| run(Network::new(conditions, seed), 1000);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn probabilities_are_met() {
        let share = |conditions, of: fn(&[(u64, Delivery)]) -> usize| {
            let arrived = run(Network::new(conditions, 7), 10_000);
            (800..1200).contains(&of(&arrived)) || panic!("{} of 10,000", of(&arrived))
        };
        let base = Conditions::default();
        assert!(share(Conditions { loss: 0.1, ..base }, |all| 10_000 - all.len()));
        assert!(share(Conditions { duplication: 0.1, ..base }, |all| all.len() - 10_000));
        assert!(share(Conditions { ecn: 0.1, ..base }, |all| all
            .iter()
            .filter(|(_, d)| d.net.traffic_class == 3)
            .count()));
        assert!(share(Conditions { corruption: 0.1, ..base }, |all| {
            all.iter().filter(|(_, d)| d.bytes != (d.number as u32).to_be_bytes()).count()
        }));
        assert!(share(Conditions { reordering: 0.1, ..base }, |all| {
            all.iter().filter(|(at, d)| *at != d.number * 1000).count()
        }));
    }

    #[test]
    fn the_identification_can_be_hidden() {
        for (identification, ident) in [
            (Identification::Known, net().ident),
            (Identification::Guessed, Ident::Likely(3)),
            (Identification::Hidden, Ident::Likely(0)),
        ] {
            let mut network = Network::new(Conditions::default(), 1);
            network.set_identification(identification);
            network.send(Instant::ZERO, &net(), b"");
            assert_eq!(network.poll_deliver(Instant::ZERO).unwrap().net.ident, ident);
        }
    }
}
