//! Packets on their way from the halves of a queue pair to the transmit buffer.

use crate::wire::{Headers, padding};

/// A packet to send, as the halves of a queue pair yield it: its headers and the length of its
/// payload.
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

/// A packet that has been written to a slot, without its ICRC. Its path is separate, so that it is
/// copied only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    pub(crate) length: usize,
    /// Its traffic class, if that is not its path's.
    pub(crate) traffic_class: Option<u8>,
    /// True if its ICRC is computed as rxe does for a FLUSH.
    pub(crate) rxe_flush: bool,
}

impl Built {
    pub(crate) const fn new(length: usize) -> Self {
        Self { length, traffic_class: None, rxe_flush: false }
    }
}
