//! The latest records of each queue pair, for explanations of failures.

use alloc::collections::{BTreeMap, VecDeque};

use super::Record;
use crate::ids::Qpn;

/// The latest records of each queue pair.
#[derive(Debug)]
pub struct Latest {
    capacity: usize,
    /// Only of queue pairs that exist: peers name any number.
    records: BTreeMap<Qpn, VecDeque<Record>>,
}

impl Latest {
    /// Keeps so many of each queue pair.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, records: BTreeMap::new() }
    }

    /// Keeps a record of a queue pair that exists.
    pub fn keep(&mut self, record: &Record) {
        if self.capacity == 0 {
            return;
        }
        let kept = self.records.entry(record.qpn).or_default();
        if kept.len() >= self.capacity {
            kept.pop_front();
        }
        kept.push_back(record.clone());
    }

    /// The queue pair is gone.
    pub fn forget(&mut self, qpn: Qpn) {
        self.records.remove(&qpn);
    }

    /// Those of a queue pair, the oldest first.
    pub fn of(&self, qpn: Qpn) -> impl Iterator<Item = &Record> {
        self.records.get(&qpn).into_iter().flatten()
    }
}
