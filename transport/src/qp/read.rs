//! READ requests, split to fit the receiver's buffers; the peer sees ordinary READs.

use alloc::collections::VecDeque;

use crate::{
    congestion::OVERHEAD,
    psn::Psn,
    wire::{Bth, ICRC_LEN},
};

/// A shared budget's credits during one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credits {
    /// Largest request with overhead, in bytes, at least one packet.
    pub(crate) portion: u64,
    pub(crate) left: u64,
}

impl Credits {
    pub(crate) const NONE: Self = Self { portion: 0, left: 0 };
    pub(crate) const UNLIMITED: Self = Self { portion: u64::MAX, left: u64::MAX };
}

/// Outstanding bytes on a lossless path: enough for the peer, without monopolizing its adapter.
const LOSSLESS: u64 = 1 << 20;

/// Bytes per send call: one UDP datagram.
const RUN: u32 = 65_507;
const HEADERS: u32 = (Bth::LEN + ICRC_LEN) as u32;

/// The first two packets of a response form a run, as does the last: the rest should fill whole
/// runs.
const fn in_whole_runs(most: u32, mtu: u32) -> u32 {
    let run = RUN / (mtu + HEADERS);
    match most.checked_sub(3) {
        Some(between) if between >= run => 3 + between / run * run,
        _ => most,
    }
}

#[derive(Clone, Copy, Debug)]
struct ReadRequest {
    end: Psn,
    /// Bytes outstanding.
    bytes: u64,
    /// Bytes of one packet.
    cost: u64,
    ends: bool,
}

#[derive(Debug, Default)]
pub(super) struct ReadRequests {
    outstanding: VecDeque<ReadRequest>,
    bytes: u64,
    pub(super) waits: bool,
    /// The peer's packets come through shared memory, without loss.
    pub(super) lossless: bool,
}

impl ReadRequests {
    /// Outstanding bytes within the shared budget.
    pub(super) const fn shared(&self) -> u64 {
        if self.lossless { 0 } else { self.bytes }
    }

    /// Returns the PSN after the requested packets; `None` without credits.
    pub(super) fn request(&mut self, psn: Psn, left: u32, mtu: u32, given: Credits) -> Option<Psn> {
        let credits = match self.lossless {
            true => Credits { portion: LOSSLESS / 2, left: LOSSLESS.saturating_sub(self.bytes) },
            false => given,
        };
        let cost = u64::from(mtu) + OVERHEAD;
        let most = u32::try_from(credits.portion / cost).unwrap_or(u32::MAX).max(1);
        let packets = left.min(if self.lossless { most } else { in_whole_runs(most, mtu) });
        let bytes = u64::from(packets) * cost;
        if bytes > credits.left {
            self.waits = !self.lossless; // else the next data frees credits
            return None;
        }
        self.waits = false;
        let end = psn.plus(packets);
        self.outstanding.push_back(ReadRequest { end, bytes, cost, ends: packets == left });
        self.bytes += bytes;
        Some(end)
    }

    pub(super) fn end_of(&self, psn: Psn) -> Option<Psn> {
        self.outstanding.iter().map(|request| request.end).find(|&end| psn.is_before(end))
    }

    /// Returns completed requests that do not end their work request.
    pub(super) fn on_data(&mut self, end: Psn) -> u32 {
        let mut complete = 0;
        while let Some(request) = self.outstanding.front_mut() {
            let packets = u64::from(request.end.after(end).unwrap_or(0));
            let left = request.bytes.min(packets * request.cost);
            self.bytes -= request.bytes - left;
            request.bytes = left;
            if left > 0 {
                break;
            }
            complete += u32::from(!request.ends);
            self.outstanding.pop_front();
        }
        complete
    }

    pub(super) fn clear(&mut self) {
        *self = Self { lossless: self.lossless, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_whose_responses_are_whole_runs() {
        let cases = [(1, 1), (17, 17), (18, 18), (21, 18), (32, 18), (33, 33), (107, 93)];
        for (most, packets) in cases {
            assert_eq!(in_whole_runs(most, 4096), packets, "of {most}");
        }
        assert_eq!((in_whole_runs(59, 1024), in_whole_runs(70, 1024)), (59, 65));
        assert_eq!(in_whole_runs(u32::MAX, 4096) % 15, 3);
    }
}
