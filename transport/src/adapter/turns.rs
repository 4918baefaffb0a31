//! The order in which queue pairs send: rounds of bounded turns.
//!
//! Read first: RFC 8290, section 4.2 (the scheduler of FQ-CoDel). A queue pair that had nothing to
//! send comes before those that always have something, for one turn: who has little to say waits
//! for the turn that is under way, and for others like it. Then it stands behind all others until
//! they have had theirs, so that nobody comes first twice in a round.

use alloc::{collections::VecDeque, vec::Vec};

/// Queue pairs that may have something to send.
#[derive(Default, Debug)]
pub(super) struct Turns {
    fresh: VecDeque<usize>,
    others: VecDeque<usize>,
    /// By queue pair: whether it is in one of the lines, or has its turn.
    is_ready: Vec<bool>,
}

/// The turn of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) index: usize,
    is_fresh: bool,
}

impl Turns {
    /// There is a queue pair with this index.
    pub(super) fn make_place(&mut self, index: usize) {
        if self.is_ready.len() <= index {
            self.is_ready.resize(index + 1, false);
        }
    }

    /// Number of queue pairs that there have been at once.
    pub(super) const fn len(&self) -> usize {
        self.is_ready.len()
    }

    /// Gives a queue pair a turn, unless it has one already.
    pub(super) fn add(&mut self, index: usize) {
        if let Some(is_ready @ false) = self.is_ready.get_mut(index) {
            *is_ready = true;
            self.fresh.push_back(index);
        }
    }

    /// Begins the next turn.
    pub(super) fn begin(&mut self) -> Option<Turn> {
        let fresh = self.fresh.pop_front().map(|index| Turn { index, is_fresh: true });
        fresh.or_else(|| Some(Turn { index: self.others.pop_front()?, is_fresh: false }))
    }

    /// Ends a turn.
    pub(super) fn end(&mut self, turn: Turn, has_more: bool) {
        let Turn { index, is_fresh } = turn;
        if has_more || is_fresh && !self.others.is_empty() {
            self.others.push_back(index);
        } else if let Some(is_ready) = self.is_ready.get_mut(index) {
            *is_ready = false;
        }
    }

    /// Puts off a turn in which nothing could be sent.
    pub(super) fn put_off(&mut self, turn: Turn) {
        let line = if turn.is_fresh { &mut self.fresh } else { &mut self.others };
        line.push_front(turn.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(count: usize) -> Turns {
        let mut turns = Turns::default();
        turns.make_place(count - 1);
        turns
    }

    fn next(turns: &mut Turns, has_more: bool) -> Option<usize> {
        let turn = turns.begin()?;
        turns.end(turn, has_more);
        Some(turn.index)
    }

    #[test]
    fn who_had_nothing_to_send_comes_first_and_once_in_a_round() {
        let mut turns = turns(10);
        (0..4).for_each(|index| turns.add(index));
        (0..4).for_each(|index| assert_eq!(next(&mut turns, true), Some(index)));
        assert_eq!(next(&mut turns, true), Some(0));
        turns.add(9);
        assert_eq!(next(&mut turns, false), Some(9));
        turns.add(9);
        let round: Vec<_> = (0..5).map(|_| next(&mut turns, true).unwrap()).collect();
        assert_eq!(round, [1, 2, 3, 0, 9], "its second message waits for everybody's turn");
    }

    #[test]
    fn many_with_little_do_not_starve_one_with_much() {
        let mut turns = turns(101);
        turns.add(100);
        assert_eq!(next(&mut turns, true), Some(100));
        let mut waited = 0;
        for _ in 0..1000 {
            (0..100).for_each(|index| turns.add(index));
            let turn = turns.begin().unwrap();
            waited = if turn.index == 100 { 0 } else { waited + 1 };
            assert!(waited <= 200, "no more than one turn of all others in between, twice");
            turns.end(turn, turn.index == 100);
        }
    }

    #[test]
    fn a_turn_that_is_put_off_comes_next() {
        let mut turns = turns(2);
        turns.add(0);
        turns.add(1);
        let turn = turns.begin().unwrap();
        turns.put_off(turn);
        assert_eq!(next(&mut turns, false), Some(0));
        assert_eq!(next(&mut turns, false), Some(1));
        assert_eq!(next(&mut turns, false), None);
    }
}
