use crate::wire::{Headers, padding};

#[derive(Debug)]
pub(super) struct OutgoingPacket {
    pub(super) headers: Headers,
    pub(super) payload: usize,
}

impl OutgoingPacket {
    /// Returns the length; `fill` writes the payload.
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

/// A packet without ICRC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    pub(crate) length: usize,
    /// Overrides the path's.
    pub(crate) traffic_class: Option<u8>,
    /// Needs rxe's FLUSH ICRC.
    pub(crate) rxe_flush: bool,
}

impl Built {
    pub(crate) const fn new(length: usize) -> Self {
        Self { length, traffic_class: None, rxe_flush: false }
    }
}
