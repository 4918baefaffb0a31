//! Queues: ports and receive buffers.
//!
//! ```text
//!  senders ─▶ faults ─▶ port: rate, queue, marks ─▶ delay, jitter ─▶ receive buffer ─▶ receiver
//!              lost       full: dropped                                full: dropped
//! ```
//!
//! Read first: SIGCOMM 2015, "Congestion Control for Large-Scale RDMA Deployments", 3.1 (marking).

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use roce_transport::{time::Instant, wire::NetHeader};

/// Ethernet overhead: preamble, header, checksum, gap.
const ETHERNET: u64 = 8 + 14 + 4 + 12;
const UDP: u64 = 8;
/// Linux's overhead per datagram, about.
const BOOKKEEPING: u64 = 768;

/// Switch port per destination address or multicast group; a full queue drops.
///
/// Lengths on the wire: UDP payload plus 66 bytes over IPv4, 86 over IPv6.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bottleneck {
    /// Bits per second; 0 counts as 1.
    pub rate: u64,
    /// One port for all destinations.
    pub shared: bool,
    /// Queue in bytes, including the datagram in transmission; holds at least one datagram.
    pub queue: u64,
    /// ECN marking, if any.
    pub marking: Option<Marking>,
}

impl Bottleneck {
    /// Unlimited queues without marks.
    #[must_use]
    pub const fn new(rate: u64) -> Self {
        Self { rate, shared: false, queue: u64::MAX, marking: None }
    }
}

/// RED: the marked share of ECT datagrams is 0 up to `min` queued bytes, rises to `most` at `max`,
/// and is 1 above.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Marking {
    /// K_min, bytes.
    pub min: u64,
    /// K_max, bytes.
    pub max: u64,
    /// P_max, 0 to 1.
    pub most: f64,
}

impl Marking {
    /// Probability of a mark.
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

/// Receive buffer per destination, like a socket's. A full buffer drops; above three quarters, the
/// receiver notifies the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// Time per datagram.
    pub time: Duration,
    /// Buffer in bytes; a datagram takes its payload plus 768. Linux's default is 212,992.
    pub buffer: u64,
}

impl Receiver {
    /// Receiver with Linux's default buffer.
    #[must_use]
    pub const fn new(time: Duration) -> Self {
        Self { time, buffer: 212_992 }
    }

    /// Buffer in bytes.
    #[must_use]
    pub fn room(self) -> usize {
        usize::try_from(self.buffer).unwrap_or(usize::MAX)
    }
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Datagrams that entered.
    pub passed: u64,
    /// Datagrams dropped.
    pub dropped: u64,
    /// Datagrams marked.
    pub marked: u64,
    /// Most bytes held.
    pub longest: u64,
}

impl QueueCounters {
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

/// Picoseconds: a bit at 400 Gbit/s is 2.5.
pub(super) type Picos = u128;

pub(super) fn serialisation(bytes: u64, rate: u64) -> Picos {
    u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(rate.max(1))
}

pub(super) fn on_wire(net: &NetHeader, payload: usize) -> u64 {
    let ip = if net.dst.is_ipv4() { 20 } else { 40 };
    payload as u64 + UDP + ip + ETHERNET
}

pub(super) const fn in_buffer(payload: usize) -> u64 {
    payload as u64 + BOOKKEEPING
}

pub(super) const fn is_ect(net: &NetHeader) -> bool {
    matches!(net.traffic_class & 3, 1 | 2)
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Departure and bytes of each datagram.
    inside: VecDeque<(Picos, u64)>,
    held: u64,
    free_at: Picos,
    pub(super) counters: QueueCounters,
}

impl Queue {
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

    /// Departure, or `None` without room.
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
}

fn picos(time: Instant) -> Picos {
    u128::from(time.as_nanos()) * 1000
}

/// Queues by destination. Counters of idle queues are merged: chosen addresses cannot grow the
/// table.
#[derive(Debug, Default)]
pub(super) struct Queues {
    of: BTreeMap<Option<IpAddr>, Queue>,
    forgotten: QueueCounters,
}

const KEPT: usize = 4096;

impl Queues {
    pub(super) fn toward(&mut self, now: Instant, to: Option<IpAddr>) -> &mut Queue {
        if self.of.len() >= KEPT && !self.of.contains_key(&to) {
            let forgotten = &mut self.forgotten;
            self.of.retain(|_, queue| {
                let idle = queue.held(now) == 0;
                if idle {
                    *forgotten = forgotten.and(queue.counters);
                }
                !idle
            });
        }
        self.of.entry(to).or_default()
    }

    /// `None`: the sum of all.
    pub(super) fn counters(&self, to: Option<IpAddr>) -> QueueCounters {
        match to {
            Some(_) => self.of.get(&to).map(|queue| queue.counters).unwrap_or_default(),
            None => self.of.values().fold(self.forgotten, |sum, queue| sum.and(queue.counters)),
        }
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
        assert_eq!(queues.counters(None).passed, 20_000);
    }
}
