//! READ requests on the wire. One READ of the program becomes as many as keep what is asked for and
//! not yet here within what the receiver's buffers hold; a peer sees ordinary READs.

use alloc::collections::VecDeque;

use crate::{
    congestion::OVERHEAD,
    psn::Psn,
    wire::{Bth, ICRC_LEN},
};

/// Room in a budget that queue pairs share, as one of them sees it during one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes of one request and its overhead, at most; a request has one packet at least.
    pub(crate) portion: u64,
    /// Bytes that may still be taken.
    pub(crate) left: u64,
}

impl Room {
    /// For one that does not send.
    pub(crate) const NONE: Self = Self { portion: 0, left: 0 };
    /// Of a budget that does not exist.
    pub(crate) const UNLIMITED: Self = Self { portion: u64::MAX, left: u64::MAX };
}

/// Bytes that a queue pair may have asked for by itself when their way loses nothing; half of them
/// are one request at most. Enough that the peer always has work, and little of its adapter's time.
const BY_MEMORY: u64 = 1 << 20;

/// Bytes of the packets that a host sends with one call, at most: those of a UDP datagram.
const RUN: u32 = 65_507;
/// Bytes of a packet in the middle of an answer, besides its payload.
const HEADERS: u32 = (Bth::LEN + ICRC_LEN) as u32;

/// Packets to ask for when there is room for `most`. All of a run are equally long, but the last
/// may be shorter; the first and the last packet of an answer are longer than the others. So the
/// first and the second are a run, the last is one, and those between them are to be whole ones.
const fn in_whole_runs(most: u32, mtu: u32) -> u32 {
    let run = RUN / (mtu + HEADERS);
    match most.checked_sub(3) {
        Some(between) if between >= run => 3 + between / run * run,
        _ => most,
    }
}

/// A READ request whose data has not all come.
#[derive(Clone, Copy, Debug)]
struct Portion {
    end: Psn,
    /// Of what has not come.
    bytes: u64,
    /// Of one packet.
    cost: u64,
    /// True for the last one of its work request.
    ends: bool,
}

/// Those of one queue pair, in the order of their PSNs.
#[derive(Debug, Default)]
pub(super) struct Portions {
    outstanding: VecDeque<Portion>,
    bytes: u64,
    /// The next one waits for room.
    waits: bool,
    /// The peer's packets come through this host's memory, where they wait without loss.
    by_memory: bool,
}

impl Portions {
    /// Bytes of the budget that queue pairs share: asked for and not yet here, with their overhead;
    /// whole packets counted.
    pub(super) const fn shared(&self) -> u64 {
        if self.by_memory { 0 } else { self.bytes }
    }

    /// A packet of the peer has come, through memory or a network.
    pub(super) const fn record_way(&mut self, by_memory: bool) {
        self.by_memory = by_memory;
    }

    /// True if a READ waits for room in the shared budget.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    /// Forgets that READs wait for room; the next call tries again.
    pub(super) const fn try_anew(&mut self) {
        self.waits = false;
    }

    /// Asks for so many of the `left` packets of `mtu` bytes that begin at `psn`; returns the PSN
    /// after them. `None` while there is no room.
    pub(super) fn ask(&mut self, psn: Psn, left: u32, mtu: u32, room: Room) -> Option<Psn> {
        let room = match self.by_memory {
            true => Room { portion: BY_MEMORY / 2, left: BY_MEMORY.saturating_sub(self.bytes) },
            false => room,
        };
        let cost = u64::from(mtu) + OVERHEAD;
        let most = u32::try_from(room.portion / cost).unwrap_or(u32::MAX).max(1);
        let packets = left.min(if self.by_memory { most } else { in_whole_runs(most, mtu) });
        let bytes = u64::from(packets) * cost;
        if bytes > room.left {
            self.waits = !self.by_memory; // otherwise the next data makes room
            return None;
        }
        self.waits = false;
        let end = psn.plus(packets);
        self.outstanding.push_back(Portion { end, bytes, cost, ends: packets == left });
        self.bytes += bytes;
        Some(end)
    }

    /// The end of the request that asked for `psn`.
    pub(super) fn end_of(&self, psn: Psn) -> Option<Psn> {
        self.outstanding.iter().map(|portion| portion.end).find(|&end| psn.is_before(end))
    }

    /// Everything before `end` has come. Returns how many requests are complete that are not the
    /// last of their work request.
    pub(super) fn on_data(&mut self, end: Psn) -> u32 {
        let mut complete = 0;
        while let Some(portion) = self.outstanding.front_mut() {
            let packets = u64::from(portion.end.after(end).unwrap_or(0));
            let left = portion.bytes.min(packets * portion.cost);
            self.bytes -= portion.bytes - left;
            portion.bytes = left;
            if left > 0 {
                break;
            }
            complete += u32::from(!portion.ends);
            self.outstanding.pop_front();
        }
        complete
    }

    /// Nothing is asked for any more.
    pub(super) fn clear(&mut self) {
        *self = Self { by_memory: self.by_memory, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_whose_answers_are_whole_runs() {
        let cases = [(1, 1), (17, 17), (18, 18), (21, 18), (32, 18), (33, 33), (107, 93)];
        for (most, packets) in cases {
            assert_eq!(in_whole_runs(most, 4096), packets, "of {most}");
        }
        assert_eq!((in_whole_runs(59, 1024), in_whole_runs(70, 1024)), (59, 65));
        assert_eq!(in_whole_runs(u32::MAX, 4096) % 15, 3);
    }
}
