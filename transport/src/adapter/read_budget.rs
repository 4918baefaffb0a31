//! Bytes that the READs of all queue pairs may have asked for at once.
//!
//! The answer to a READ comes as fast as the peer can send, whatever the receiver's socket holds.
//! So the requester asks for no more than that. Queue pairs that find no room wait in a line, and
//! the foremost is woken when there is room for a request.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{
    addr::Mtu,
    qp::{OVERHEAD, ReadRoom},
};

/// Requests that the budget is divided into: enough that the next one is on its way while data of
/// another arrives, and few, since the first and the last packet of each answer leave by themselves.
const PORTIONS: u64 = 2;
/// The largest packet.
const LEAST: u64 = Mtu::B4096.bytes() as u64 + OVERHEAD;

#[derive(Debug)]
pub(super) struct ReadBudget {
    limit: u64,
    taken: u64,
    shares: Vec<Share>,
    waiting: VecDeque<usize>,
    /// Who is to ask next; until it has, there is no room for others.
    granted: Option<usize>,
}

/// What a queue pair has of it.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    taken: u64,
    waits: bool,
    in_line: bool,
}

impl ReadBudget {
    pub(super) fn new(limit: u64) -> Self {
        let limit = limit.max(LEAST);
        Self { limit, taken: 0, shares: Vec::new(), waiting: VecDeque::new(), granted: None }
    }

    /// Room for a queue pair that has taken so much by now.
    pub(super) fn room(&self, index: usize, taken: u64) -> ReadRoom {
        let portion = self.portion();
        let left = self.left(index, taken);
        let left = match self.granted {
            Some(granted) if granted != index => 0,
            // one request, when others wait
            Some(_) if !self.waiting.is_empty() => {
                left.min(portion.saturating_sub(taken.saturating_sub(self.noted(index))))
            }
            None if !self.waiting.is_empty() => 0,
            _ => left,
        };
        ReadRoom { portion, left }
    }

    /// Bytes of one request, at most.
    fn portion(&self) -> u64 {
        (self.limit / PORTIONS).max(LEAST)
    }

    fn noted(&self, index: usize) -> u64 {
        self.shares.get(index).map_or(0, |share| share.taken)
    }

    fn left(&self, index: usize, taken: u64) -> u64 {
        self.limit.saturating_sub(self.taken - self.noted(index) + taken)
    }

    /// Notes what a queue pair has taken by now, and whether it waits for more. Returns one that
    /// waits and can go on.
    pub(super) fn update(&mut self, index: usize, taken: u64, waits: bool) -> Option<usize> {
        if self.shares.len() <= index {
            if taken == 0 && !waits {
                return None;
            }
            self.shares.resize(index + 1, Share::default());
        }
        let share = &mut self.shares[index];
        if self.granted == Some(index) && (!waits || taken > share.taken) {
            self.granted = None;
        }
        self.taken = self.taken - share.taken + taken;
        (share.taken, share.waits) = (taken, waits);
        if waits && !share.in_line && self.granted != Some(index) {
            share.in_line = true;
            self.waiting.push_back(index);
        }
        if self.taken > 0 && self.left(index, taken) < self.portion() {
            return None;
        }
        while self.granted.is_none()
            && let Some(next) = self.waiting.pop_front()
        {
            self.shares[next].in_line = false;
            // one that was destroyed meanwhile does not wait any more
            self.granted = Some(next).filter(|_| self.shares[next].waits);
        }
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_go_on_in_order() {
        let mut budget = ReadBudget::new(16_384);
        assert_eq!(budget.room(0, 0).portion, 8192);
        assert_eq!(budget.update(0, 16_384, false), None);
        assert_eq!(budget.update(1, 0, true), None);
        assert_eq!(budget.update(2, 0, true), None);
        assert_eq!(budget.update(1, 0, true), None, "it stands in line once");
        assert_eq!(budget.update(0, 8192, false), Some(1));
        assert_eq!((budget.room(0, 8192).left, budget.room(1, 0).left), (0, 8192));
        assert_eq!(budget.update(0, 8192, true), Some(1), "still");
        assert_eq!(budget.update(1, 8192, false), None);
        assert_eq!(budget.update(0, 0, true), Some(2));
        assert_eq!(budget.update(2, 0, false), Some(0), "it has nothing to ask for any more");
    }

    #[test]
    fn what_was_destroyed_is_passed_over() {
        let mut budget = ReadBudget::new(16_384);
        budget.update(0, 16_384, false);
        budget.update(1, 0, true);
        budget.update(2, 0, true);
        budget.update(1, 0, false);
        assert_eq!(budget.update(0, 0, false), Some(2));
        assert_eq!(budget.room(2, 0).left, 16_384);
    }
}
