//! Byte budgets of READs and of data in flight to a destination.

use alloc::vec::Vec;

use super::turns::{Turn, TurnState, Turns, entry};
use crate::{congestion::LARGEST, qp::Credits};

/// One portion arrives while another is in flight. More portions split READ responses, whose first
/// and last packets join no run.
const PORTIONS: u64 = 2;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Share {
    taken: u64,
    waits: bool,
    place: TurnState,
}

impl Share {
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_recorded(shares: &[Self], index: usize, taken: u64, waits: bool) -> bool {
        let recorded = shares.get(index).copied().unwrap_or_default();
        !waits && !recorded.waits && recorded.taken == taken
    }
}

#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    largest: u64,
    taken: u64,
    waiting: Turns,
    /// Other queue pairs wait until this turn takes credits.
    granted: Option<Turn>,
}

impl Budget {
    pub(super) fn new(limit: u64, largest: u64) -> Self {
        let limit = limit.max(LARGEST);
        Self { limit, largest, taken: 0, waiting: Turns::default(), granted: None }
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit.max(LARGEST);
    }

    fn portion(&self) -> u64 {
        (self.limit / PORTIONS).min(self.largest).max(LARGEST)
    }

    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn credits(&self, shares: &[Share], index: usize, taken: u64) -> Credits {
        let recorded = shares.get(index).map_or(0, Share::taken);
        let portion = self.portion();
        let left = self.limit.saturating_sub(self.taken - recorded + taken);
        let left = match self.granted {
            Some(granted) if granted.index != index => 0,
            // one portion while others wait
            Some(_) if !self.waiting.is_empty() => {
                left.min(portion.saturating_sub(taken.saturating_sub(recorded)))
            }
            None if !self.waiting.is_empty() => 0,
            _ => left,
        };
        Credits { portion, left }
    }

    /// Returns the next queue pair to continue.
    pub(super) fn update(
        &mut self,
        shares: &mut Vec<Share>,
        index: usize,
        taken: u64,
        waits: bool,
    ) -> Option<usize> {
        if shares.len() <= index && taken == 0 && !waits {
            return None;
        }
        let share = entry(shares, index);
        if let Some(turn) = self.granted.filter(|turn| turn.index == index)
            && (!waits || taken > share.taken)
        {
            self.granted = None;
            let got = taken.saturating_sub(share.taken);
            self.waiting.end(turn, got, waits, &mut share.place);
        }
        self.taken = self.taken - share.taken + taken;
        (share.taken, share.waits) = (taken, waits);
        if waits {
            self.waiting.add(index, &mut share.place);
        }
        if self.granted.is_none() && self.waiting.is_empty() {
            return None;
        }
        if self.taken > 0 && self.limit.saturating_sub(self.taken) < self.portion() {
            return None;
        }
        while self.granted.is_none()
            && let Some(next) = self.waiting.begin(|index| &mut shares[index].place)
        {
            let share = &mut shares[next.index];
            match share.waits {
                true => self.granted = Some(next),
                false => self.waiting.end(next, 0, false, &mut share.place),
            }
        }
        self.granted.map(|turn| turn.index)
    }

    pub(super) fn leave(&mut self, shares: &mut Vec<Share>, index: usize) -> Option<usize> {
        let next = self.update(shares, index, 0, false);
        if let Some(share) = shares.get_mut(index) {
            self.waiting.remove(index, &mut share.place);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Test {
        budget: Budget,
        shares: Vec<Share>,
    }

    impl Test {
        fn new() -> Self {
            Self { budget: Budget::new(16_384, u64::MAX), shares: Vec::new() }
        }

        fn update(&mut self, index: usize, taken: u64, waits: bool) -> Option<usize> {
            self.budget.update(&mut self.shares, index, taken, waits)
        }

        fn left(&self, index: usize, taken: u64) -> u64 {
            self.budget.credits(&self.shares, index, taken).left
        }
    }

    #[test]
    fn those_who_wait_go_on_in_order() {
        let mut test = Test::new();
        assert_eq!(test.update(0, 16_384, false), None);
        assert_eq!(test.update(1, 0, true), None);
        assert_eq!(test.update(2, 0, true), None);
        assert_eq!(test.update(1, 0, true), None, "it stands in line once");
        assert_eq!(test.update(0, 8192, false), Some(1));
        assert_eq!((test.left(0, 8192), test.left(1, 0)), (0, 8192));
        assert_eq!(test.update(0, 8192, true), Some(1), "still");
        assert_eq!(test.update(1, 8192, false), None);
        assert_eq!(test.update(0, 0, true), Some(2));
        assert_eq!(test.update(2, 0, false), Some(0), "it has nothing to ask for any more");
    }

    #[test]
    fn what_was_destroyed_is_passed_over() {
        let mut test = Test::new();
        test.update(0, 16_384, false);
        test.update(1, 0, true);
        test.update(2, 0, true);
        test.update(1, 0, false);
        assert_eq!(test.update(0, 0, false), Some(2));
        assert_eq!(test.left(2, 0), 16_384);
    }

    #[test]
    fn who_leaves_is_no_longer_in_line() {
        let mut test = Test::new();
        test.update(0, 16_384, false);
        test.update(1, 0, true);
        assert_eq!(test.budget.leave(&mut test.shares, 1), None);
        assert!(test.budget.waiting.is_empty());
        assert_eq!(test.budget.leave(&mut test.shares, 0), None);
        assert_eq!((test.budget.taken(), test.left(1, 0)), (0, 16_384));
    }
}
