//! Counters per queue pair, as differences of the adapter's.

use super::{Adapter, error::ObjectError};
use crate::{event::Counters, ids::Qpn, wire::Packet};

impl Adapter {
    /// Starts a queue pair's counters and disables the adapter's fast paths.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`].
    pub fn count_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let index = self.qps.index_of(qpn).ok_or(ObjectError::Unknown)?;
        self.qps.counted.entry(index).or_default();
        Ok(())
    }

    /// Counters since [`count_qp`](Self::count_qp).
    #[must_use]
    pub fn qp_counters(&self, qpn: Qpn) -> Option<&Counters> {
        self.qps.counted.get(&self.qps.index_of(qpn)?)
    }

    pub(super) fn counted_before(&self, index: usize) -> Option<(usize, Counters)> {
        self.qps.counted.contains_key(&index).then(|| (index, self.reports.counters.clone()))
    }

    pub(super) fn counted_destination(&self, packet: &Packet<'_>) -> Option<(usize, Counters)> {
        if self.qps.counted.is_empty() {
            return None;
        }
        self.counted_before(self.qps.index_of(packet.headers.bth().dest_qp)?)
    }

    pub(super) fn count_since(&mut self, counted: Option<(usize, Counters)>) {
        if let Some((index, before)) = counted
            && let Some(own) = self.qps.counted.get_mut(&index)
        {
            own.add_difference(&before, &self.reports.counters);
        }
    }
}
