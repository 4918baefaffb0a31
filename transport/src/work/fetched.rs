//! Runs fetched from memory behind a driver, instead of single packets.
//!
//! Early fetching is allowed: a request's memory is the adapter's until completion, and a READ may
//! find bytes of any time.

use alloc::vec::Vec;

use crate::mem::AccessError;

const RUN: u64 = 256 << 10;

#[derive(Debug, Default)]
pub(crate) struct Fetched {
    from: u64,
    bytes: Vec<u8>,
}

impl Fetched {
    /// `length` is the message's; `fetch` brings missing bytes.
    pub(crate) fn read(
        &mut self,
        offset: u64,
        to: &mut [u8],
        length: u64,
        fetch: impl FnOnce(u64, &mut [u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let range = |from: u64| {
            let start = usize::try_from(offset.checked_sub(from)?).ok()?;
            Some(start..start.checked_add(to.len())?)
        };
        let there = range(self.from).filter(|range| range.end <= self.bytes.len());
        if there.is_none() {
            let run = length.saturating_sub(offset).min(RUN).max(to.len() as u64);
            self.from = offset;
            self.bytes.clear();
            self.bytes.resize(run as usize, 0);
            fetch(offset, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        }
        let there = there.unwrap_or(0..to.len());
        to.copy_from_slice(&self.bytes[there]);
        Ok(())
    }
}
