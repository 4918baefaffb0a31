//! Queues of a network: a port of a limited rate in front of each destination, and the receive
//! buffer behind it.
//!
//! ```text
//!  senders ─▶ faults ─▶ port: rate, queue, marks ─▶ delay, jitter ─▶ receive buffer ─▶ receiver
//!              lost       full: dropped                                full: dropped
//! ```
//!
//! Read first: "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), 3.1, for how a
//! switch marks.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use roce_transport::{time::Instant, wire::NetHeader};

/// Bytes of a datagram on an Ethernet beside its IP packet: preamble, header, checksum, gap.
const ETHERNET: u64 = 8 + 14 + 4 + 12;
const UDP: u64 = 8;
/// Bytes that Linux keeps a datagram's book with in a socket's receive buffer, about.
const BOOKKEEPING: u64 = 768;

/// Ports of a switch, through which all datagrams go: each has a rate and a queue, and what finds
/// the queue full is dropped. Each destination address has a port of its own, which all senders
/// share; a multicast group counts as one destination.
///
/// Lengths are those on the wire: 66 bytes more than the UDP payload over IPv4, 86 over IPv6
/// (UDP, IP, and Ethernet's preamble, header, checksum and gap).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bottleneck {
    /// Rate in bits per second; 0 counts as 1.
    pub rate: u64,
    /// True if there is one port for all destinations.
    pub shared: bool,
    /// Room of a port in bytes, the datagram that is just being sent included. One datagram always
    /// finds room. By default there is no limit.
    pub queue: u64,
    /// How a port marks "congestion experienced". By default it does not.
    pub marking: Option<Marking>,
}

impl Bottleneck {
    /// A port of this rate for each destination, whose queue has no limit and marks nothing.
    #[must_use]
    pub const fn new(rate: u64) -> Self {
        Self { rate, shared: false, queue: u64::MAX, marking: None }
    }
}

/// Random early detection, on the bytes that a datagram finds in the queue. The share of marked
/// datagrams is 0 up to `min`, grows to `most` at `max`, and is 1 above. Only datagrams whose
/// sender can do with marks (ECT, 1 or 2 in the lowest two bits of the traffic class) are marked;
/// the others pass as they are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Marking {
    /// Bytes in the queue up to which nothing is marked (K_min).
    pub min: u64,
    /// Bytes in the queue beyond which everything is marked (K_max).
    pub max: u64,
    /// Probability at `max` (P_max), 0 to 1.
    pub most: f64,
}

impl Marking {
    /// Probability of a mark for a datagram that finds so many bytes in the queue.
    #[must_use]
    pub fn probability(&self, queued: u64) -> f64 {
        if queued <= self.min.min(self.max) {
            0.0
        } else if queued > self.max {
            1.0
        } else {
            self.most * (queued - self.min) as f64 / (self.max - self.min) as f64
        }
    }
}

/// A receiver that takes datagrams one after the other from a limited buffer, as a program from a
/// socket. A full buffer drops datagrams. A datagram of a connection that finds the buffer more
/// than three quarters full notifies its sender. Each destination address is a receiver.
///
/// It drains at its own rate, however often the owner of a [`Network`](super::Network) polls. A
/// receiver that is not served for a while takes long for a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// Time that it needs for a datagram.
    pub time: Duration,
    /// Room of the buffer in bytes, of which a datagram takes 768 more than its UDP payload, as
    /// Linux counts. 212,992 is Linux's default.
    pub buffer: u64,
}

impl Receiver {
    /// A receiver that needs this time for a datagram, with Linux's default buffer.
    #[must_use]
    pub const fn new(time: Duration) -> Self {
        Self { time, buffer: 212_992 }
    }

    /// Its buffer, as a number of bytes in memory.
    #[must_use]
    pub fn room(self) -> usize {
        usize::try_from(self.buffer).unwrap_or(usize::MAX)
    }
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Datagrams that found room.
    pub passed: u64,
    /// Datagrams that found none, and were dropped.
    pub dropped: u64,
    /// Datagrams that were marked "congestion experienced".
    pub marked: u64,
    /// The most bytes that it has held.
    pub longest: u64,
}

impl QueueCounters {
    /// Both together; of the longest queues the longer one.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            dropped: self.dropped + other.dropped,
            marked: self.marked + other.marked,
            longest: self.longest.max(other.longest),
        }
    }
}

/// Picoseconds, in which even the bits of 400 Gbit/s have a length.
pub(super) type Picos = u128;

/// Time that so many bytes take at this rate.
pub(super) fn serialisation(bytes: u64, rate: u64) -> Picos {
    u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(rate.max(1))
}

/// Length of a datagram on the wire.
pub(super) fn on_wire(net: &NetHeader, payload: usize) -> u64 {
    let ip = if net.dst.is_ipv4() { 20 } else { 40 };
    payload as u64 + UDP + ip + ETHERNET
}

/// Bytes of a receive buffer that a datagram takes.
pub(super) const fn in_buffer(payload: usize) -> u64 {
    payload as u64 + BOOKKEEPING
}

/// True if the sender can do with marks.
pub(super) const fn is_ect(net: &NetHeader) -> bool {
    matches!(net.traffic_class & 3, 1 | 2)
}

/// A queue that is served in its order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Each datagram inside: when it will have left, and its bytes.
    inside: VecDeque<(Picos, u64)>,
    held: u64,
    free_at: Picos,
    pub(super) counters: QueueCounters,
}

impl Queue {
    /// Bytes inside.
    pub(super) fn held(&mut self, now: Instant) -> u64 {
        let now = picos(now);
        while let Some(&(leaves, bytes)) = self.inside.front()
            && leaves <= now
        {
            self.inside.pop_front();
            self.held -= bytes;
        }
        self.held
    }

    /// Takes a datagram that is served for the time `service`; returns when that is over. `None`:
    /// there was no room.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        service: Picos,
        bytes: u64,
        limit: u64,
    ) -> Option<Instant> {
        let held = self.held(now);
        if held > 0 && held.saturating_add(bytes) > limit {
            self.counters.dropped += 1;
            return None;
        }
        self.free_at = self.free_at.max(picos(now)) + service;
        self.inside.push_back((self.free_at, bytes));
        self.held += bytes;
        self.counters.passed += 1;
        self.counters.longest = self.counters.longest.max(self.held);
        let nanos = u64::try_from(self.free_at.div_ceil(1000)).unwrap_or(u64::MAX);
        Some(Instant::from_nanos(nanos))
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        self.held(now);
        self.inside.is_empty()
    }
}

fn picos(time: Instant) -> Picos {
    u128::from(time.as_nanos()) * 1000
}

/// Queues by destination. The counters of idle queues move into a sum when there are many: a choice
/// of addresses does not grow the table.
#[derive(Debug, Default)]
pub(super) struct Queues {
    of: BTreeMap<Option<IpAddr>, Queue>,
    forgotten: QueueCounters,
}

/// Queues that are kept though they are idle.
const KEPT: usize = 4096;

impl Queues {
    /// The queue toward this address, or the one for all.
    pub(super) fn toward(&mut self, now: Instant, to: Option<IpAddr>) -> &mut Queue {
        if self.of.len() >= KEPT && !self.of.contains_key(&to) {
            let forgotten = &mut self.forgotten;
            self.of.retain(|_, queue| {
                let idle = queue.is_idle(now);
                if idle {
                    *forgotten = forgotten.and(queue.counters);
                }
                !idle
            });
        }
        self.of.entry(to).or_default()
    }

    pub(super) fn counters(&self, to: Option<IpAddr>) -> QueueCounters {
        self.of.get(&to).map(|queue| queue.counters).unwrap_or_default()
    }

    pub(super) fn total(&self) -> QueueCounters {
        self.of.values().fold(self.forgotten, |sum, queue| sum.and(queue.counters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn marks_grow_between_the_thresholds() {
        let marking = Marking { min: 1000, max: 3000, most: 0.5 };
        for (queued, probability) in
            [(0, 0.0), (1000, 0.0), (2000, 0.25), (3000, 0.5), (3001, 1.0), (u64::MAX, 1.0)]
        {
            assert_eq!(marking.probability(queued), probability, "{queued}");
        }
        let step = Marking { min: 2000, max: 2000, most: 0.5 };
        assert_eq!([2000, 2001].map(|queued| step.probability(queued)), [0.0, 1.0]);
        let reversed = Marking { min: 3000, max: 1000, most: 0.5 };
        assert_eq!([1000, 1001].map(|queued| reversed.probability(queued)), [0.0, 1.0]);
    }

    #[test]
    fn a_queue_is_served_in_order_and_drops_what_finds_no_room() {
        let mut queue = Queue::default();
        let service = serialisation(125, 1_000_000_000);
        assert_eq!(queue.enter(at(0), service, 125, 250), Some(at(1000)));
        assert_eq!(queue.enter(at(0), service, 125, 250), Some(at(2000)));
        assert_eq!(queue.enter(at(999), service, 125, 250), None);
        assert_eq!(queue.enter(at(1000), service, 125, 250), Some(at(3000)));
        assert_eq!((queue.held(at(2999)), queue.held(at(3000))), (125, 0));
        assert_eq!(queue.enter(at(5000), service, 1000, 250), Some(at(6000)), "it found it empty");
        let expected = QueueCounters { passed: 4, dropped: 1, marked: 0, longest: 1000 };
        assert_eq!(queue.counters, expected);
    }

    /// A nanosecond is no rounding error at 400 Gbit/s.
    #[test]
    fn high_rates_are_exact() {
        let mut queue = Queue::default();
        let service = serialisation(1090, 400_000_000_000);
        let last = (0..1000).filter_map(|_| queue.enter(at(0), service, 1090, u64::MAX)).last();
        assert_eq!(last, Some(at(21_800)));
    }

    #[test]
    fn addresses_are_not_remembered_for_ever() {
        let mut queues = Queues::default();
        for n in 0..20_000u32 {
            let to = Some(std::net::Ipv4Addr::from(n).into());
            queues.toward(at(u64::from(n) * 10), to).enter(at(u64::from(n) * 10), 1, 1, 1).unwrap();
        }
        assert!(queues.of.len() <= KEPT);
        assert_eq!(queues.total().passed, 20_000);
    }
}
