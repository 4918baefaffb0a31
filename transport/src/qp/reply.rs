//! Answers of a responder that wait to be sent.

use alloc::sync::Arc;

use crate::{
    mem::Region,
    psn::{Msn, Psn},
    wire::{Aeth, Reth},
    work::Fetched,
};

/// An answer that waits to be sent.
#[derive(Debug)]
pub(super) enum Reply {
    Acknowledge {
        psn: Psn,
        aeth: Aeth,
    },
    Read(ReadReply),
    Atomic {
        psn: Psn,
        aeth: Aeth,
        found: u64,
        attempt: Attempt,
    },
    /// To an ATOMIC WRITE or a FLUSH.
    Placed {
        psn: Psn,
        aeth: Aeth,
    },
}

/// Place of an answer with data: first to its request or not. What was agreed on limits the first
/// ones; the repeats have a limit of their own, so that they take no place from a new request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    First,
    Repeat,
}

/// The answer to a READ, sent up to packet `next`.
#[derive(Debug)]
pub(super) struct ReadReply {
    pub(super) first_psn: Psn,
    pub(super) packets: u32,
    pub(super) next: u32,
    pub(super) region: Option<Arc<Region>>,
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) msn: Msn,
    pub(super) attempt: Attempt,
    /// True if its last packet has waited for another answer.
    pub(super) waited: bool,
    pub(super) fetched: Fetched,
}

impl ReadReply {
    pub(super) fn new(
        first_psn: Psn,
        reth: &Reth,
        packets: u32,
        region: Option<Arc<Region>>,
        msn: Msn,
        attempt: Attempt,
    ) -> Self {
        let (address, length) = (reth.virtual_address, reth.dma_length);
        let (waited, fetched) = (false, Fetched::default());
        Self { first_psn, packets, next: 0, region, address, length, msn, attempt, waited, fetched }
    }

    pub(super) fn holds(&self, psn: Psn) -> bool {
        psn.after(self.first_psn).is_some_and(|n| n < self.packets)
    }
}
