//! Deadlines: a heap with lazy correction.
//!
//! A later deadline is corrected when its entry expires. Calls visit a bounded number of entries.

use alloc::{collections::BinaryHeap, vec::Vec};
use core::cmp::Reverse;

use super::turns::entry;
use crate::time::Instant;

/// Most entries visited per call.
pub(super) const PORTION: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    earliest: Vec<Option<Instant>>,
}

impl Timers {
    pub(super) fn set(&mut self, index: usize, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let earliest = entry(&mut self.earliest, index);
        if earliest.is_none_or(|earliest| deadline < earliest) {
            *earliest = Some(deadline);
            self.heap.push(Reverse((deadline, index)));
            self.compact();
        }
    }

    /// Drops replaced entries, of which peers can cause many.
    fn compact(&mut self) {
        if self.heap.len() > 2 * self.earliest.len() + 16 {
            let entries = self.earliest.iter().enumerate();
            self.heap =
                entries.filter_map(|(index, at)| at.map(|at| Reverse((at, index)))).collect();
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        if let Some(earliest) = self.earliest.get_mut(index) {
            *earliest = None;
        }
    }

    /// Returns the earliest deadline, or an earlier time; `current` is authoritative.
    pub(super) fn next(&mut self, current: impl Fn(usize) -> Option<Instant>) -> Option<Instant> {
        for _ in 0..PORTION {
            let &Reverse((at, index)) = self.heap.peek()?;
            let is_earliest = self.earliest[index] == Some(at);
            let due = if is_earliest { current(index) } else { None };
            if due == Some(at) {
                return due;
            }
            self.heap.pop();
            if is_earliest {
                self.earliest[index] = None;
                self.set(index, due);
            }
        }
        self.heap.peek().map(|&Reverse((at, _))| at)
    }

    /// Each visit decrements `left`.
    pub(super) fn pop_due(
        &mut self,
        now: Instant,
        left: &mut usize,
        current: impl Fn(usize) -> Option<Instant>,
    ) -> Option<usize> {
        while let Some(&Reverse((at, index))) = self.heap.peek()
            && at <= now
        {
            *left = left.checked_sub(1)?;
            self.heap.pop();
            if self.earliest[index] != Some(at) {
                continue;
            }
            self.earliest[index] = None;
            match current(index) {
                Some(due) if due <= now => return Some(index),
                moved => self.set(index, moved),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Option<Instant> {
        Some(Instant::from_nanos(nanos))
    }

    #[test]
    fn a_deadline_that_moved_is_found_at_its_new_place() {
        let mut timers = Timers::default();
        timers.set(0, at(10));
        timers.set(1, at(20));
        let moved = |index: usize| [at(30), at(20)][index];
        assert_eq!(timers.next(moved), at(20));
        let mut left = PORTION;
        let mut pop = |now, current: &dyn Fn(usize) -> _| {
            timers.pop_due(Instant::from_nanos(now), &mut left, current)
        };
        assert_eq!(pop(25, &moved), Some(1));
        assert_eq!(pop(25, &|i| [at(30), None][i]), None);
        assert_eq!(pop(30, &|i| [at(30), None][i]), Some(0));
        assert_eq!(timers.next(|_| None), None);
    }

    #[test]
    fn no_call_looks_at_all() {
        let many = 10 * PORTION;
        let mut timers = Timers::default();
        (0..many).for_each(|index| timers.set(index, at(10)));
        let looked = core::cell::Cell::new(0);
        let moved = |_: usize| {
            looked.set(looked.get() + 1);
            at(1000)
        };
        assert_eq!(timers.next(moved), at(10), "too early, but never too late");
        assert_eq!(looked.take(), PORTION);
        let now = Instant::from_nanos(10);
        for round in 1..10 {
            let mut left = PORTION;
            assert_eq!(timers.pop_due(now, &mut left, moved), None);
            assert_eq!(looked.take(), PORTION);
            let next = if round < 9 { 10 } else { 1000 };
            assert_eq!(timers.heap.peek().map(|Reverse((at, _))| at.as_nanos()), Some(next));
        }
        let (now, mut left) = (Instant::from_nanos(1000), PORTION);
        let due = core::iter::from_fn(|| timers.pop_due(now, &mut left, moved));
        assert_eq!(due.count(), PORTION);
    }

    #[test]
    fn replaced_entries_do_not_pile_up() {
        let mut timers = Timers::default();
        for nanos in (0..100_000).rev() {
            timers.set(0, at(nanos));
        }
        assert!(timers.heap.len() < 20, "{}", timers.heap.len());
        assert_eq!(timers.next(|_| at(0)), at(0));
    }

    #[test]
    fn an_earlier_deadline_wins() {
        let mut timers = Timers::default();
        timers.set(0, at(10));
        timers.set(0, at(5));
        assert_eq!(timers.pop_due(Instant::from_nanos(5), &mut 1, |_| at(5)), Some(0));
        assert_eq!(timers.next(|_| None), None);
    }
}
