//! Counters of one queue pair: kept for those that someone asked for, as differences of the
//! adapter's.

use super::{Adapter, error::ObjectError};
use crate::{event::Counters, ids::Qpn, wire::Packet};

impl Adapter {
    /// From now on counts for this queue pair alone, too. Does nothing if it is counted for
    /// already. Meanwhile the adapter sends and takes every packet by itself, which is slower.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`].
    pub fn count_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let index = self.qps.place(qpn).ok_or(ObjectError::Unknown)?;
        self.qps.counted.entry(index).or_default();
        Ok(())
    }

    /// Counters of this queue pair since [`count_qp`](Self::count_qp).
    #[must_use]
    pub fn qp_counters(&self, qpn: Qpn) -> Option<&Counters> {
        self.qps.counted.get(&self.qps.place(qpn)?)
    }

    /// For a queue pair that is counted for alone: what has been counted until now.
    pub(super) fn counted_before(&self, index: usize) -> Option<(usize, Counters)> {
        self.qps.counted.contains_key(&index).then(|| (index, self.reports.counters.clone()))
    }

    /// The same for the queue pair that a packet names.
    pub(super) fn counted_destination(&self, packet: &Packet<'_>) -> Option<(usize, Counters)> {
        if self.qps.counted.is_empty() {
            return None;
        }
        self.counted_before(self.qps.place(packet.headers.bth().dest_qp)?)
    }

    /// Adds what has been counted since then to this queue pair's counters.
    pub(super) fn count_since(&mut self, counted: Option<(usize, Counters)>) {
        if let Some((index, before)) = counted
            && let Some(own) = self.qps.counted.get_mut(&index)
        {
            own.add_difference(&before, &self.reports.counters);
        }
    }
}
