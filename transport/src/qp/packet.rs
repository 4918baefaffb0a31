//! Packets from the halves of a queue pair to the transmit buffer.

use crate::wire::{Headers, padding};

/// Headers and payload length of a packet.
#[derive(Debug)]
pub(super) struct OutgoingPacket {
    pub(super) headers: Headers,
    pub(super) payload: usize,
}

impl OutgoingPacket {
    /// Writes headers, payload (through `fill`) and padding; returns their length.
    pub(super) fn write<E>(
        &self,
        slot: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let headers = self.headers.encode(self.payload, slot);
        let end = headers + self.payload;
        fill(&mut slot[headers..end])?;
        let padded = end + padding(self.payload);
        slot[end..padded].fill(0);
        Ok(padded)
    }
}

/// A packet in a slot, without ICRC. Its path is separate, to be copied once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    pub(crate) length: usize,
    /// In place of the path's traffic class.
    pub(crate) traffic_class: Option<u8>,
    /// Needs rxe's ICRC of a FLUSH.
    pub(crate) rxe_flush: bool,
}

impl Built {
    pub(crate) const fn new(length: usize) -> Self {
        Self { length, traffic_class: None, rxe_flush: false }
    }
}
