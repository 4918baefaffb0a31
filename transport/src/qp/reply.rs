use alloc::{boxed::Box, sync::Arc};

use crate::{
    mem::Region,
    psn::{Msn, Psn},
    wire::{Aeth, Reth},
    work::Fetched,
};

/// A response. `Placed`: response to an ATOMIC WRITE or FLUSH.
#[derive(Debug)]
pub(super) enum Reply {
    Acknowledge { psn: Psn, aeth: Aeth },
    Read(ReadReply),
    Atomic { psn: Psn, aeth: Aeth, found: u64, attempt: Attempt },
    Placed { psn: Psn, aeth: Aeth },
}

/// Limits apply separately: repeats must not displace new requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    First,
    Repeat,
}

/// A READ response, sent up to packet `next`.
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
    /// Its last packet has waited once.
    pub(super) waited: bool,
    /// Of memory behind a driver.
    pub(super) fetched: Option<Box<Fetched>>,
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
        let (waited, fetched) = (false, None);
        Self { first_psn, packets, next: 0, region, address, length, msn, attempt, waited, fetched }
    }

    pub(super) fn holds(&self, psn: Psn) -> bool {
        psn.after(self.first_psn).is_some_and(|n| n < self.packets)
    }
}
