//! The table of neighbours: which MAC address an IP address of the same network has.
//!
//! Only addresses that this host asks for have an entry, so nobody else can fill the table. Their
//! number is bounded, because a peer may have us send to any address.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use pnet_datalink::MacAddr;
use roce_transport::time::Instant;

use super::counters::FrameCounters;

/// Entries, and those among them whose address is not known yet: they must not push out the others.
const ENTRIES: usize = 1024;
const UNKNOWN: usize = 256;
/// Questions that are asked, and the time between them (RFC 4861: `MAX_MULTICAST_SOLICIT`,
/// `MAX_UNICAST_SOLICIT`, `RetransTimer`; Linux asks as often by ARP).
const QUESTIONS: u8 = 3;
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which an answer counts (`REACHABLE_TIME`).
const REACHABLE: Duration = Duration::from_secs(30);
/// Frames that wait for one address, and bytes that wait for all of them. Of small ones Linux keeps
/// as many; an unreliable connection, which may begin with a message of many packets, repeats none.
const WAITING: usize = 256;
const WAITING_BYTES: usize = 4 << 20;

/// The state of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lookup {
    /// Its MAC address.
    Known(MacAddr),
    /// It is being asked for.
    Asked,
    /// It is not asked for: there are too many others.
    Refused,
}

/// A question that is due: broadcast, or to the MAC address that it is to confirm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question {
    pub(super) target: IpAddr,
    pub(super) to: Option<MacAddr>,
}

/// What a message says about the MAC address of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// It answers a question of ours.
    Answer,
    /// It was not asked for: a request, or an announcement.
    Told,
    /// It answers, but does not replace another MAC address (a neighbour advertisement without its
    /// override flag).
    Humble,
}

/// A frame that waits for the receiver's address, behind its priority.
pub(super) type Waiting = (u8, Vec<u8>);

#[derive(Debug)]
struct Entry {
    state: State,
    used: Instant,
}

#[derive(Debug)]
enum State {
    /// Asked for `asked` times; asked again, or given up, at `due`.
    Unknown { asked: u8, due: Instant, waiting: VecDeque<Waiting> },
    /// Answered; until then nothing needs to be asked.
    Known { mac: MacAddr, until: Instant },
    /// In use, and asked whether it is still so.
    Confirming { mac: MacAddr, asked: u8, due: Instant },
}

#[derive(Debug, Default)]
pub(super) struct Neighbors {
    entries: BTreeMap<IpAddr, Entry>,
    unknown: usize,
    waiting_bytes: usize,
    questions: VecDeque<Question>,
    /// No question is due before this.
    next: Option<Instant>,
}

impl Neighbors {
    /// The MAC address to send to, which is asked for if it is not known.
    pub(super) fn lookup(
        &mut self,
        now: Instant,
        address: IpAddr,
        counters: &mut FrameCounters,
    ) -> Lookup {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.used = now;
            return match entry.state {
                State::Unknown { .. } => Lookup::Asked,
                State::Confirming { mac, .. } => Lookup::Known(mac),
                State::Known { mac, until } => {
                    if until <= now {
                        let due = now.plus(INTERVAL);
                        entry.state = State::Confirming { mac, asked: 1, due };
                        self.next = Instant::earliest([self.next, Some(due)]);
                        self.questions.push_back(Question { target: address, to: Some(mac) });
                    }
                    Lookup::Known(mac)
                }
            };
        }
        if self.unknown >= UNKNOWN || self.entries.len() >= ENTRIES && !self.forget(now) {
            counters.table_full += 1;
            return Lookup::Refused;
        }
        let due = now.plus(INTERVAL);
        let state = State::Unknown { asked: 1, due, waiting: VecDeque::new() };
        self.entries.insert(address, Entry { state, used: now });
        self.unknown += 1;
        self.next = Instant::earliest([self.next, Some(due)]);
        self.questions.push_back(Question { target: address, to: None });
        Lookup::Asked
    }

    /// Forgets the neighbour that has not been used for the longest time, if it has not been for as
    /// long as an answer counts.
    fn forget(&mut self, now: Instant) -> bool {
        let known = self.entries.iter().filter(|(_, entry)| !entry.is_unknown());
        let oldest = known.min_by_key(|(_, entry)| entry.used);
        let Some((&address, entry)) = oldest else { return false };
        let forgotten = now.since(entry.used) >= REACHABLE;
        if forgotten {
            self.entries.remove(&address);
        }
        forgotten
    }

    /// Keeps a frame until the MAC address is known, whose place in the frame is empty.
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

    /// Takes a claim, and returns what has waited for it, with the receiver's address filled in.
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
                // what was told without being asked for is used, and asked about with the next use
                let until = if claim == Claim::Told { now } else { until };
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
                    Claim::Told if same => {}
                    Claim::Humble if !same => {}
                    Claim::Answer | Claim::Humble => {
                        counters.moved += u64::from(!same);
                        entry.state = State::Known { mac, until };
                    }
                    Claim::Told => {
                        counters.moved += 1;
                        entry.state = State::Known { mac, until: now };
                    }
                }
                VecDeque::new()
            }
        }
    }

    /// Asks again, and gives up who does not answer.
    pub(super) fn handle_timeout(&mut self, now: Instant, counters: &mut FrameCounters) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let Self { entries, unknown, waiting_bytes, questions, next } = self;
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
            if *asked < QUESTIONS {
                *asked += 1;
                *due = now.plus(INTERVAL);
                *next = Instant::earliest([*next, Some(*due)]);
                questions.push_back(Question { target, to });
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

    /// True if it keeps frames.
    pub(super) const fn has_waiting(&self) -> bool {
        self.waiting_bytes > 0
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout).
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn poll_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    const fn is_unknown(&self) -> bool {
        matches!(self.state, State::Unknown { .. })
    }
}
