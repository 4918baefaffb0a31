//! READ requests on the wire. One READ of the program becomes as many as keep what is asked for and
//! not yet here within what the receiver's buffers hold; a peer sees ordinary READs.

use alloc::collections::VecDeque;

use crate::psn::Psn;

/// Bytes of a receive buffer that a datagram takes besides its payload: headers, and what the
/// system keeps for each. Linux takes from 300 to 4,000, depending on sizes and interface.
pub(crate) const OVERHEAD: u64 = 768;

/// Room for the data of READs, as a queue pair sees it during one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRoom {
    /// Bytes of one request and its overhead, at most; a request has one packet at least.
    pub(crate) portion: u64,
    /// Bytes that may still be asked for.
    pub(crate) left: u64,
}

/// A READ request whose data has not all come.
#[derive(Clone, Copy, Debug)]
struct Portion {
    end: Psn,
    bytes: u64,
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
}

impl Portions {
    /// Bytes asked for and not yet here, with their overhead; whole requests counted.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if a READ waits for room.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    /// Nothing waits for room, as far as is known: it is tried anew.
    pub(super) const fn try_anew(&mut self) {
        self.waits = false;
    }

    /// Asks for so many of the `left` packets of `mtu` bytes that begin at `psn`; returns the PSN
    /// after them. `None` while there is no room.
    pub(super) fn ask(&mut self, psn: Psn, left: u32, mtu: u32, room: ReadRoom) -> Option<Psn> {
        let cost = u64::from(mtu) + OVERHEAD;
        let most = u32::try_from(room.portion / cost).unwrap_or(u32::MAX).max(1);
        let packets = left.min(most);
        let bytes = u64::from(packets) * cost;
        self.waits = bytes > room.left;
        if self.waits {
            return None;
        }
        let end = psn.plus(packets);
        self.outstanding.push_back(Portion { end, bytes, ends: packets == left });
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
        while let Some(portion) = self.outstanding.front().filter(|its| !end.is_before(its.end)) {
            self.bytes -= portion.bytes;
            complete += u32::from(!portion.ends);
            self.outstanding.pop_front();
        }
        complete
    }

    /// Nothing is asked for any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
