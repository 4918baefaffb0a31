use alloc::collections::{BTreeMap, VecDeque};

use super::Record;
use crate::{bounded, ids::Qpn};

/// Latest records of each queue pair.
#[derive(Debug)]
pub struct Latest {
    capacity: usize,
    /// Existing queue pairs only: peers name any number.
    records: BTreeMap<Qpn, VecDeque<Record>>,
}

impl Latest {
    /// Keeps `capacity` records per queue pair.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, records: BTreeMap::new() }
    }

    /// Keeps a record of an existing queue pair.
    pub fn keep(&mut self, record: &Record) {
        if self.capacity == 0 {
            return;
        }
        let kept = self.records.entry(record.qpn).or_default();
        bounded::push(kept, record.clone(), self.capacity);
    }

    /// Removes a destroyed queue pair.
    pub fn forget(&mut self, qpn: Qpn) {
        self.records.remove(&qpn);
    }

    /// Records, oldest first.
    pub fn of(&self, qpn: Qpn) -> impl Iterator<Item = &Record> {
        self.records.get(&qpn).into_iter().flatten()
    }
}
