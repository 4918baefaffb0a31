use alloc::collections::BTreeMap;
use core::ops::{Deref, DerefMut, RangeInclusive};

use hashbrown::HashMap;
use rand_core::RngCore;
use slab::Slab;

use super::timers::Timers;
use crate::{event::Counters, hash::IdHasher, ids::Qpn, qp::Qp, time::Instant};

pub(super) struct QueuePairs {
    all: Slab<Qp>,
    indexes: HashMap<Qpn, usize, IdHasher>,
    last_found: Option<(Qpn, usize)>,
    range: RangeInclusive<u32>,
    pub(super) timers: Timers,
    pub(super) counted: BTreeMap<usize, Counters>,
}

impl QueuePairs {
    pub(super) fn new(range: RangeInclusive<u32>) -> Self {
        let (indexes, timers) = (HashMap::default(), Timers::default());
        let (all, counted) = (Slab::new(), BTreeMap::new());
        Self { all, indexes, last_found: None, range, timers, counted }
    }

    pub(super) fn index_of(&self, qpn: Qpn) -> Option<usize> {
        self.indexes.get(&qpn).copied()
    }

    /// Like [`index_of`](Self::index_of), with the last result cached.
    #[inline]
    pub(super) fn find(&mut self, qpn: Qpn) -> Option<usize> {
        if let Some((last, index)) = self.last_found
            && last == qpn
        {
            return Some(index);
        }
        let index = self.index_of(qpn)?;
        self.last_found = Some((qpn, index));
        Some(index)
    }

    pub(super) fn random_number(&self, rng: &mut impl RngCore) -> u32 {
        let numbers = self.range.end().saturating_sub(*self.range.start()).saturating_add(1);
        self.range.start() + rng.next_u32() % numbers
    }

    pub(super) fn add(&mut self, qp: Qp) -> usize {
        let qpn = qp.common.qpn;
        let index = self.all.insert(qp);
        self.indexes.insert(qpn, index);
        index
    }

    pub(super) fn take(&mut self, qpn: Qpn) -> Option<(usize, Qp)> {
        self.last_found = None;
        let index = self.indexes.remove(&qpn)?;
        self.timers.forget(index);
        self.counted.remove(&index);
        Some((index, self.all.remove(index)))
    }

    pub(super) fn pop_due(&mut self, now: Instant, left: &mut usize) -> Option<usize> {
        let all = &self.all;
        self.timers.pop_due(now, left, |index| all.get(index).and_then(Qp::deadline))
    }

    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let all = &self.all;
        self.timers.next(|index| all.get(index).and_then(Qp::deadline))
    }
}

impl Deref for QueuePairs {
    type Target = Slab<Qp>;

    #[inline]
    fn deref(&self) -> &Slab<Qp> {
        &self.all
    }
}

impl DerefMut for QueuePairs {
    #[inline]
    fn deref_mut(&mut self) -> &mut Slab<Qp> {
        &mut self.all
    }
}
