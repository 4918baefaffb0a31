//! Rounds of bounded turns, for sending and credits (RFC 8290, 4.2, FQ-CoDel).
//!
//! A queue pair that was idle goes first, within its share of the round.

use alloc::{collections::VecDeque, vec::Vec};

use crate::congestion::LARGEST_RUN;

pub(super) const QUANTUM: u64 = LARGEST_RUN as u64 * 4096;

#[derive(Default, Debug)]
pub(super) struct Turns {
    fresh: VecDeque<usize>,
    others: VecDeque<usize>,
    unfinished: Option<Turn>,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct TurnState {
    is_fresh: bool,
    is_in_round: bool,
    /// Bytes left in this round.
    credit: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) index: usize,
    pub(super) bytes: u64,
    is_fresh: bool,
}

/// A queue pair's entry, added if missing.
pub(super) fn entry<T: Clone + Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.others.is_empty() && self.unfinished.is_none()
    }

    /// Returns `None` beyond `most`, or if others wait.
    pub(super) fn few_fresh(&self, most: usize) -> Option<impl Iterator<Item = usize>> {
        let are_few = self.fresh.len() <= most;
        let only = are_few && self.others.is_empty() && self.unfinished.is_none();
        only.then(|| self.fresh.iter().copied())
    }

    pub(super) fn add(&mut self, index: usize, place: &mut TurnState) {
        if !place.is_in_round {
            place.credit = QUANTUM;
        }
        if !place.is_fresh && place.credit > 0 {
            place.is_fresh = true;
            self.fresh.push_back(index);
        }
    }

    pub(super) fn sort_fresh_by_key<K: Ord>(&mut self, count: usize, key: impl Fn(usize) -> K) {
        if self.fresh.len() < 2 {
            return;
        }
        let mut first: Vec<_> = self.fresh.drain(..count.min(self.fresh.len())).collect();
        first.sort_by_cached_key(|&index| key(index));
        first.into_iter().rev().for_each(|index| self.fresh.push_front(index));
    }

    pub(super) fn begin<'a>(
        &mut self,
        place_of: impl FnOnce(usize) -> &'a mut TurnState,
    ) -> Option<Turn> {
        if let Some(turn) = self.unfinished.take() {
            return Some(turn);
        }
        let is_fresh = !self.fresh.is_empty();
        let line = if is_fresh { &mut self.fresh } else { &mut self.others };
        let index = line.pop_front()?;
        let place = place_of(index);
        if !is_fresh {
            place.credit = QUANTUM;
        }
        Some(Turn { index, bytes: place.credit, is_fresh })
    }

    pub(super) fn end(&mut self, turn: Turn, sent: u64, has_more: bool, place: &mut TurnState) {
        let Turn { index, is_fresh, .. } = turn;
        place.credit = place.credit.saturating_sub(sent);
        let was_in_round = place.is_in_round && is_fresh;
        place.is_in_round = was_in_round || has_more || is_fresh && !self.others.is_empty();
        if place.is_in_round && !was_in_round {
            self.others.push_back(index);
        }
        place.is_fresh &= !is_fresh;
    }

    pub(super) fn interrupt(&mut self, turn: Turn, sent: u64, place: &mut TurnState) {
        place.credit = place.credit.saturating_sub(sent);
        self.unfinished = Some(Turn { bytes: turn.bytes.saturating_sub(sent), ..turn });
    }

    pub(super) fn remove(&mut self, index: usize, place: &mut TurnState) {
        if place.is_fresh {
            self.fresh.retain(|&other| other != index);
        }
        if place.is_in_round {
            self.others.retain(|&other| other != index);
        }
        self.unfinished = self.unfinished.filter(|turn| turn.index != index);
        *place = TurnState::default();
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, vec};

    use super::*;

    struct Test {
        turns: Turns,
        places: Vec<TurnState>,
    }

    impl Test {
        fn new() -> Self {
            Self { turns: Turns::default(), places: vec![TurnState::default(); 101] }
        }

        fn add(&mut self, index: usize) {
            self.turns.add(index, &mut self.places[index]);
        }

        fn begin(&mut self) -> Option<Turn> {
            self.turns.begin(|index| &mut self.places[index])
        }

        fn next(&mut self, sent: u64, has_more: bool) -> Option<usize> {
            let turn = self.begin()?;
            self.turns.end(turn, sent, has_more, &mut self.places[turn.index]);
            Some(turn.index)
        }
    }

    #[test]
    fn who_had_nothing_to_send_comes_first_until_its_share_is_used_up() {
        let mut test = Test::new();
        (0..4).for_each(|index| test.add(index));
        (0..4).for_each(|index| assert_eq!(test.next(QUANTUM, true), Some(index)));
        assert_eq!(test.next(QUANTUM, true), Some(0));
        test.add(9);
        assert_eq!(test.next(QUANTUM - 10, false), Some(9));
        test.add(9);
        test.add(1);
        assert_eq!(test.next(10, false), Some(9));
        test.add(9);
        let round: Vec<_> = (0..5).map(|_| test.next(QUANTUM, true).unwrap()).collect();
        assert_eq!(round, [1, 2, 3, 0, 9], "what it sends now waits for everybody's turn");
    }

    #[test]
    fn a_few_of_many_are_sorted() {
        let mut test = Test::new();
        (0..100).for_each(|index| test.add(index));
        let looked = Cell::new(0);
        test.turns.sort_fresh_by_key(10, |index| {
            looked.set(looked.get() + 1);
            100 - index
        });
        assert_eq!(looked.get(), 10);
        let order: Vec<_> = (0..12).map(|_| test.next(1, false).unwrap()).collect();
        assert_eq!(order, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 10, 11]);
    }

    #[test]
    fn many_with_little_do_not_starve_one_with_much() {
        let mut test = Test::new();
        test.add(100);
        let (mut much, mut little) = (0, 0);
        for _ in 0..100_000 {
            (0..100).for_each(|index| test.add(index));
            let turn = test.begin().unwrap();
            let sent = if turn.index == 100 { QUANTUM } else { QUANTUM / 4 };
            *(if turn.index == 100 { &mut much } else { &mut little }) += sent;
            test.turns.end(turn, sent, turn.index == 100, &mut test.places[turn.index]);
        }
        assert!(much * 210 > little, "its share is a hundredth at least, and half of that here");
    }

    #[test]
    fn a_turn_that_is_interrupted_goes_on() {
        let mut test = Test::new();
        test.add(0);
        test.add(1);
        let turn = test.begin().unwrap();
        test.turns.interrupt(turn, 10, &mut test.places[0]);
        let turn = test.begin().unwrap();
        assert_eq!((turn.index, turn.bytes), (0, QUANTUM - 10));
        test.turns.end(turn, 1, false, &mut test.places[0]);
        assert_eq!(test.next(1, false), Some(1));
        assert_eq!((test.next(1, false), test.turns.is_empty()), (None, true));
    }

    #[test]
    fn who_is_forgotten_is_in_no_line() {
        let mut test = Test::new();
        (0..3).for_each(|index| test.add(index));
        test.next(QUANTUM, true);
        test.next(1, true);
        test.add(1);
        for index in 0..3 {
            test.turns.remove(index, &mut test.places[index]);
        }
        assert!(test.turns.is_empty());
    }
}
