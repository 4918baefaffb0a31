use alloc::collections::BTreeSet;

use hashbrown::HashMap;

use crate::{hash::IdHasher, time::Instant};

#[derive(Default)]
pub(super) struct Deadlines {
    by_time: BTreeSet<(Instant, u32)>,
    by_id: HashMap<u32, Instant, IdHasher>,
}

impl Deadlines {
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

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|&(at, _)| at)
    }

    pub(super) fn pop_first(&mut self) -> Option<u32> {
        let &(_, id) = self.by_time.first()?;
        self.clear(id);
        Some(id)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        self.next().filter(|&at| at <= now)?;
        self.pop_first()
    }
}
