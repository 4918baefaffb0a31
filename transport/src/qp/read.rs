//! READ requests on the wire: a work request is split so that outstanding data fits the receiver's
//! buffers. The peer sees ordinary READs.

use alloc::collections::VecDeque;

use crate::{
    congestion::OVERHEAD,
    psn::Psn,
    wire::{Bth, ICRC_LEN},
};

/// Credits of a shared budget during one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Largest request with overhead, in bytes; at least one packet is allowed.
    pub(crate) portion: u64,
    /// Bytes left.
    pub(crate) left: u64,
}

impl Room {
    /// For a queue pair that does not send.
    pub(crate) const NONE: Self = Self { portion: 0, left: 0 };
    /// Without a budget.
    pub(crate) const UNLIMITED: Self = Self { portion: u64::MAX, left: u64::MAX };
}

/// Outstanding bytes of a queue pair on a lossless path, at most half per request: enough work for
/// the peer, little of its adapter's time.
const BY_MEMORY: u64 = 1 << 20;

/// Bytes per send call of a host: one UDP datagram.
const RUN: u32 = 65_507;
/// Bytes of a middle response packet besides its payload.
const HEADERS: u32 = (Bth::LEN + ICRC_LEN) as u32;

/// Returns how many of `most` packets to request. A run has equal packets, the last possibly
/// shorter; a response's first and last are longer. The first two packets form a run, the last is
/// one, and the rest should fill whole runs.
const fn in_whole_runs(most: u32, mtu: u32) -> u32 {
    let run = RUN / (mtu + HEADERS);
    match most.checked_sub(3) {
        Some(between) if between >= run => 3 + between / run * run,
        _ => most,
    }
}

/// An unfinished READ request.
#[derive(Clone, Copy, Debug)]
struct Portion {
    end: Psn,
    /// Bytes outstanding.
    bytes: u64,
    /// Bytes of one packet.
    cost: u64,
    /// Last of its work request.
    ends: bool,
}

/// A queue pair's READ requests in PSN order.
#[derive(Debug, Default)]
pub(super) struct Portions {
    outstanding: VecDeque<Portion>,
    bytes: u64,
    /// The next waits for credits.
    waits: bool,
    /// The peer's packets come through shared memory, without loss.
    by_memory: bool,
}

impl Portions {
    /// Returns outstanding bytes of the shared budget, with overhead, in whole packets.
    pub(super) const fn shared(&self) -> u64 {
        if self.by_memory { 0 } else { self.bytes }
    }

    /// Records the path of the peer's packets.
    pub(super) const fn record_way(&mut self, by_memory: bool) {
        self.by_memory = by_memory;
    }

    /// True if a READ waits for shared credits.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    /// Stops waiting; the next call retries.
    pub(super) const fn try_anew(&mut self) {
        self.waits = false;
    }

    /// Requests some of the `left` packets from `psn` and returns the PSN after them; `None`
    /// without credits.
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
            self.waits = !self.by_memory; // else the next data frees credits
            return None;
        }
        self.waits = false;
        let end = psn.plus(packets);
        self.outstanding.push_back(Portion { end, bytes, cost, ends: packets == left });
        self.bytes += bytes;
        Some(end)
    }

    /// Returns the end of the request for `psn`.
    pub(super) fn end_of(&self, psn: Psn) -> Option<Psn> {
        self.outstanding.iter().map(|portion| portion.end).find(|&end| psn.is_before(end))
    }

    /// Handles data before `end`. Returns the completed requests, those that end a work request
    /// excluded.
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
