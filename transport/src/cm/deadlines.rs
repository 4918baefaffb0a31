//! Deadlines of connections and of service ID resolutions.

use alloc::collections::BTreeSet;

use hashbrown::HashMap;

use crate::{hash::IdHasher, time::Instant};

/// At most one deadline for each communication ID, in the order of time.
#[derive(Default)]
pub(super) struct Deadlines {
    by_time: BTreeSet<(Instant, u32)>,
    by_id: HashMap<u32, Instant, IdHasher>,
}

impl Deadlines {
    /// Sets the deadline of `id`, in place of the one that it had.
    pub(super) fn set(&mut self, id: u32, at: Instant) {
        self.clear(id);
        self.by_time.insert((at, id));
        self.by_id.insert(id, at);
    }

    pub(super) fn clear(&mut self, id: u32) {
        if let Some(at) = self.by_id.remove(&id) {
            self.by_time.remove(&(at, id));
        }
    }

    /// Number of communication IDs with a deadline.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|&(at, _)| at)
    }

    /// Takes the communication ID with the next deadline.
    pub(super) fn pop_first(&mut self) -> Option<u32> {
        let &(_, id) = self.by_time.first()?;
        self.clear(id);
        Some(id)
    }

    /// Takes the next communication ID whose deadline has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(_, id) = self.by_time.first().filter(|(at, _)| *at <= now)?;
        self.clear(id);
        Some(id)
    }
}
