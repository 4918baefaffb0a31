//! The queue pairs of an adapter: by their places, by their numbers, and by their deadlines.

use alloc::collections::BTreeMap;
use core::ops::{Deref, DerefMut, RangeInclusive};

use rand_core::RngCore;
use slab::Slab;

use super::{numbers::Numbers, timers::Timers};
use crate::{event::Counters, ids::Qpn, qp::Qp, time::Instant};

/// Queue pairs by their places. Each has a number.
pub(super) struct QueuePairs {
    all: Slab<Qp>,
    numbers: Numbers,
    /// Numbers are drawn from here.
    range: RangeInclusive<u32>,
    timers: Timers,
    /// Counters of those that are counted for alone.
    pub(super) counted: BTreeMap<usize, Counters>,
}

impl QueuePairs {
    pub(super) fn new(range: RangeInclusive<u32>) -> Self {
        let (all, numbers, timers) = (Slab::new(), Numbers::default(), Timers::default());
        Self { all, numbers, range, timers, counted: BTreeMap::new() }
    }

    /// The place of the one with this number.
    pub(super) fn place(&self, qpn: Qpn) -> Option<usize> {
        self.numbers.get(&qpn).copied()
    }

    /// The same, of one that more packets or calls are likely to be about.
    #[inline]
    pub(super) fn find(&mut self, qpn: Qpn) -> Option<usize> {
        self.numbers.find(qpn)
    }

    /// One of the numbers that they can have.
    pub(super) fn random_number(&self, rng: &mut impl RngCore) -> u32 {
        let numbers = self.range.end().saturating_sub(*self.range.start()).saturating_add(1);
        self.range.start() + rng.next_u32() % numbers
    }

    /// Adds one, which has a number of its own. Returns its place.
    pub(super) fn add(&mut self, qp: Qp) -> usize {
        let qpn = qp.common.qpn;
        let index = self.all.insert(qp);
        self.numbers.insert(qpn, index);
        index
    }

    /// Removes the one with this number, with its timer and counters, and returns its place.
    pub(super) fn take(&mut self, qpn: Qpn) -> Option<(usize, Qp)> {
        let index = self.numbers.remove(&qpn)?;
        self.timers.forget(index);
        self.counted.remove(&index);
        Some((index, self.all.remove(index)))
    }

    /// Its deadline may have changed.
    #[inline]
    pub(super) fn set_timer(&mut self, index: usize) {
        self.timers.set(index, self.all.get(index).and_then(Qp::deadline));
    }

    /// Sets a deadline that the caller knows.
    #[inline]
    pub(super) fn set_deadline(&mut self, index: usize, deadline: Option<Instant>) {
        self.timers.set(index, deadline);
    }

    /// One whose deadline has come; of `left` looks at timers some are made.
    pub(super) fn pop_due(&mut self, now: Instant, left: &mut usize) -> Option<usize> {
        let all = &self.all;
        self.timers.pop_due(now, left, |index| all.get(index).and_then(Qp::deadline))
    }

    /// The next deadline, or an earlier time.
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
