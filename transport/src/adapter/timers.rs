//! Deadlines of queue pairs: a heap in which late entries are corrected when they come up.
//!
//! A connection's deadline moves with every acknowledgement. Only an earlier one than the entry in
//! the heap is pushed; a later one is noticed when the entry comes up.

use alloc::{collections::BinaryHeap, vec::Vec};
use core::cmp::Reverse;

use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Per queue pair: the earliest entry that the heap holds for it.
    earliest: Vec<Option<Instant>>,
}

impl Timers {
    pub(super) fn set(&mut self, index: usize, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        if self.earliest.len() <= index {
            self.earliest.resize(index + 1, None);
        }
        if self.earliest[index].is_none_or(|earliest| deadline < earliest) {
            self.earliest[index] = Some(deadline);
            self.heap.push(Reverse((deadline, index)));
            self.compact();
        }
    }

    /// Entries that an earlier one replaced stay in the heap until their time comes, which a peer
    /// could make many of. When they outnumber the others they go.
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

    /// The earliest deadline; `current` tells a queue pair's present one.
    pub(super) fn next(&mut self, current: impl Fn(usize) -> Option<Instant>) -> Option<Instant> {
        while let Some(&Reverse((at, index))) = self.heap.peek() {
            if self.earliest[index] == Some(at) && current(index) == Some(at) {
                return Some(at);
            }
            self.heap.pop();
            if self.earliest[index] == Some(at) {
                self.earliest[index] = None;
                self.set(index, current(index));
            }
        }
        None
    }

    /// Takes a queue pair whose deadline is `now` or earlier.
    pub(super) fn pop_due(
        &mut self,
        now: Instant,
        current: impl Fn(usize) -> Option<Instant>,
    ) -> Option<usize> {
        // an entry that is late is corrected when its time comes, not before
        if self.heap.peek().is_none_or(|Reverse((at, _))| *at > now) || self.next(current)? > now {
            return None;
        }
        let Reverse((_, index)) = self.heap.pop()?;
        self.earliest[index] = None;
        Some(index)
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
        assert_eq!(timers.pop_due(Instant::from_nanos(25), moved), Some(1));
        assert_eq!(timers.pop_due(Instant::from_nanos(25), |i| [at(30), None][i]), None);
        assert_eq!(timers.pop_due(Instant::from_nanos(30), |i| [at(30), None][i]), Some(0));
        assert_eq!(timers.next(|_| None), None);
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
        assert_eq!(timers.pop_due(Instant::from_nanos(5), |_| at(5)), Some(0));
        assert_eq!(timers.next(|_| None), None);
    }
}
