//! MAC addresses of IP addresses on the link.
//!
//! Only this host's own requests make entries, so other hosts cannot fill the table. The table is
//! bounded: a peer may make the host send to any address.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use pnet_datalink::MacAddr;
use roce_transport::time::Instant;

use super::counters::FrameCounters;

/// Entries, and unresolved entries, which must not evict the others.
const ENTRIES: usize = 1024;
const UNKNOWN: usize = 256;
/// Requests and their interval (RFC 4861: `MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT`,
/// `RetransTimer`; Linux: the same for ARP).
const SOLICITATIONS: u8 = 3;
const INTERVAL: Duration = Duration::from_secs(1);
/// `REACHABLE_TIME`.
const REACHABLE: Duration = Duration::from_secs(30);
/// Queued frames per address, and bytes in all. Linux queues as many small frames. An unreliable
/// connection may begin with a long message and never retransmits.
const WAITING: usize = 256;
const WAITING_BYTES: usize = 4 << 20;

/// Next hop of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// MAC address.
    Known(MacAddr),
    /// Address resolution is running: datagrams [wait](crate::Station::wait).
    Resolving(IpAddr),
    /// The station itself.
    Own,
    /// No route, or too many addresses are being resolved.
    None,
}

/// Messages that name their sender's MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    Reply,
    /// A request or announcement.
    Unsolicited,
    /// A neighbour advertisement without override flag: it replaces no other MAC address.
    NoOverride,
}

/// Priority, and a frame without destination.
pub(super) type Waiting = (u8, Vec<u8>);

#[derive(Debug)]
struct Entry {
    state: State,
    used: Instant,
}

#[derive(Debug)]
enum State {
    /// Retried or given up at `due`.
    Unknown { asked: u8, due: Instant, waiting: VecDeque<Waiting> },
    /// Resolved, fresh `until`.
    Known { mac: MacAddr, until: Instant },
    /// In use meanwhile.
    Confirming { mac: MacAddr, asked: u8, due: Instant },
}

#[derive(Debug, Default)]
pub(super) struct Neighbors {
    entries: BTreeMap<IpAddr, Entry>,
    unknown: usize,
    waiting_bytes: usize,
    /// Targets: broadcast, or unicast to confirm a MAC address.
    solicitations: VecDeque<(IpAddr, Option<MacAddr>)>,
    next: Option<Instant>,
}

impl Neighbors {
    pub(super) fn lookup(
        &mut self,
        now: Instant,
        address: IpAddr,
        counters: &mut FrameCounters,
    ) -> Hop {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.used = now;
            return match entry.state {
                State::Unknown { .. } => Hop::Resolving(address),
                State::Confirming { mac, .. } => Hop::Known(mac),
                State::Known { mac, until } => {
                    if until <= now {
                        let due = now.plus(INTERVAL);
                        entry.state = State::Confirming { mac, asked: 1, due };
                        self.next = Instant::earliest([self.next, Some(due)]);
                        self.solicitations.push_back((address, Some(mac)));
                    }
                    Hop::Known(mac)
                }
            };
        }
        if self.unknown >= UNKNOWN || self.entries.len() >= ENTRIES && !self.forget(now) {
            counters.table_full += 1;
            return Hop::None;
        }
        let due = now.plus(INTERVAL);
        let state = State::Unknown { asked: 1, due, waiting: VecDeque::new() };
        self.entries.insert(address, Entry { state, used: now });
        self.unknown += 1;
        self.next = Instant::earliest([self.next, Some(due)]);
        self.solicitations.push_back((address, None));
        Hop::Resolving(address)
    }

    /// Evicts the least recently used neighbour if unused for [`REACHABLE`].
    fn forget(&mut self, now: Instant) -> bool {
        let is_known = |entry: &Entry| !matches!(entry.state, State::Unknown { .. });
        let known = self.entries.iter().filter(|(_, entry)| is_known(entry));
        let oldest = known.min_by_key(|(_, entry)| entry.used);
        let Some((&address, entry)) = oldest else { return false };
        let forgotten = now.since(entry.used) >= REACHABLE;
        if forgotten {
            self.entries.remove(&address);
        }
        forgotten
    }

    /// `frame` has an empty destination.
    pub(super) fn wait(
        &mut self,
        address: IpAddr,
        (priority, frame): Waiting,
        counters: &mut FrameCounters,
    ) {
        let entry = self.entries.get_mut(&address).map(|entry| &mut entry.state);
        let Some(State::Unknown { waiting, .. }) = entry else {
            counters.waiting_lost += 1;
            return;
        };
        self.waiting_bytes += frame.len();
        waiting.push_back((priority, frame));
        while waiting.len() > WAITING || self.waiting_bytes > WAITING_BYTES {
            let Some((_, oldest)) = waiting.pop_front() else { break };
            self.waiting_bytes -= oldest.len();
            counters.waiting_lost += 1;
        }
    }

    /// Returns the queued frames with the destination filled in.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: MacAddr,
        claim: Claim,
        counters: &mut FrameCounters,
    ) -> VecDeque<Waiting> {
        let Some(entry) = self.entries.get_mut(&address) else { return VecDeque::new() };
        let until = now.plus(REACHABLE);
        match &mut entry.state {
            State::Unknown { waiting, .. } => {
                let mut released = std::mem::take(waiting);
                // The next use of an unsolicited claim confirms it.
                let until = if claim == Claim::Unsolicited { now } else { until };
                entry.state = State::Known { mac, until };
                self.unknown -= 1;
                counters.resolved += 1;
                for (_, frame) in &mut released {
                    self.waiting_bytes -= frame.len();
                    frame[..6].copy_from_slice(&mac.octets());
                }
                released
            }
            State::Known { mac: known, .. } | State::Confirming { mac: known, .. } => {
                let same = *known == mac;
                match claim {
                    Claim::Unsolicited if same => {}
                    Claim::NoOverride if !same => {}
                    Claim::Reply | Claim::NoOverride => {
                        counters.moved += u64::from(!same);
                        entry.state = State::Known { mac, until };
                    }
                    Claim::Unsolicited => {
                        counters.moved += 1;
                        entry.state = State::Known { mac, until: now };
                    }
                }
                VecDeque::new()
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, counters: &mut FrameCounters) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let Self { entries, unknown, waiting_bytes, solicitations, next } = self;
        *next = None;
        entries.retain(|&target, entry| {
            let (asked, due, to) = match &mut entry.state {
                State::Known { .. } => return true,
                State::Unknown { asked, due, .. } => (asked, due, None),
                State::Confirming { asked, due, mac } => (asked, due, Some(*mac)),
            };
            if now < *due {
                *next = Instant::earliest([*next, Some(*due)]);
                return true;
            }
            if *asked < SOLICITATIONS {
                *asked += 1;
                *due = now.plus(INTERVAL);
                *next = Instant::earliest([*next, Some(*due)]);
                solicitations.push_back((target, to));
                return true;
            }
            counters.unanswered += 1;
            if let State::Unknown { waiting, .. } = &entry.state {
                *unknown -= 1;
                *waiting_bytes -= waiting.iter().map(|(_, frame)| frame.len()).sum::<usize>();
                counters.waiting_lost += waiting.len() as u64;
            }
            false
        });
    }

    pub(super) const fn has_waiting(&self) -> bool {
        self.waiting_bytes > 0
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn poll_solicitation(&mut self) -> Option<(IpAddr, Option<MacAddr>)> {
        self.solicitations.pop_front()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
