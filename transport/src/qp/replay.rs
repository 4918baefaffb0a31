//! READs and atomics that a responder remembers, so that it can answer them again (9.7.5.1.4,
//! C9-105).

use alloc::collections::VecDeque;

use crate::{
    psn::{Msn, Psn},
    wire::{AtomicEth, Operation, Reth},
};

/// A request that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remembered {
    pub(crate) first_psn: Psn,
    pub(crate) packets: u32,
    /// MSN of its answer.
    pub(crate) msn: Msn,
    pub(crate) op: RememberedOp,
}

/// The operation of a remembered request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RememberedOp {
    /// Executed again when it is repeated.
    Read(Reth),
    /// Must not be carried out twice: the value that it found is kept.
    Atomic { operation: Operation, eth: AtomicEth, found: u64 },
}

/// The latest of them, as many as the next power of two of what was agreed on: rxe rounds its own
/// limit up like that.
#[derive(Debug, Default)]
pub(crate) struct ReplayRing {
    entries: VecDeque<Remembered>,
    capacity: usize,
}

impl ReplayRing {
    pub(crate) fn new(agreed: u8) -> Self {
        let capacity = capacity(agreed);
        Self { entries: VecDeque::with_capacity(capacity), capacity }
    }

    /// Remembers more from now on, or forgets the oldest.
    pub(crate) fn resize(&mut self, agreed: u8) {
        self.capacity = capacity(agreed);
        let surplus = self.entries.len().saturating_sub(self.capacity);
        self.entries.drain(..surplus);
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn remember(&mut self, entry: Remembered) {
        if self.entries.len() >= self.capacity {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The request whose answer holds `psn`.
    pub(crate) fn find(&self, psn: Psn) -> Option<Remembered> {
        self.entries
            .iter()
            .rev()
            .find(|entry| psn.after(entry.first_psn).is_some_and(|n| n < entry.packets))
            .copied()
    }
}

fn capacity(agreed: u8) -> usize {
    if agreed == 0 { 0 } else { usize::from(agreed).next_power_of_two() }
}

/// Answers to ATOMIC WRITEs and FLUSHes that may wait to be sent, and how many of those requests
/// are remembered: more than a requester's window.
pub(crate) const PLACED: usize = 512;

/// The latest ATOMIC WRITEs and FLUSHes: their PSNs and the MSNs of their answers. The response
/// says that this very request was executed, so a repeat of a request that never came must not get
/// it. A restarted peer may use PSNs that look long past.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    answered: VecDeque<(Psn, Msn)>,
}

impl Placements {
    pub(crate) fn remember(&mut self, psn: Psn, msn: Msn) {
        if self.answered.len() >= PLACED {
            self.answered.pop_front();
        }
        self.answered.push_back((psn, msn));
    }

    /// MSN of the answer to the request with this PSN.
    pub(crate) fn find(&self, psn: Psn) -> Option<Msn> {
        self.answered.iter().rev().find(|(its, _)| *its == psn).map(|(_, msn)| *msn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(psn: u32, packets: u32) -> Remembered {
        let op = RememberedOp::Read(Reth::default());
        Remembered { first_psn: Psn::new(psn), packets, msn: Msn::default(), op }
    }

    #[test]
    fn remembers_the_latest() {
        let mut ring = ReplayRing::new(3);
        assert_eq!(ring.capacity(), 4);
        for psn in (0..50).step_by(10) {
            ring.remember(read(psn, 10));
        }
        assert_eq!(ring.find(Psn::new(5)), None);
        assert_eq!(ring.find(Psn::new(19)), Some(read(10, 10)));
        assert_eq!(ring.find(Psn::new(49)), Some(read(40, 10)));
        assert_eq!(ring.find(Psn::new(50)), None);
        ring.resize(2);
        assert_eq!((ring.find(Psn::new(29)), ring.find(Psn::new(30))), (None, Some(read(30, 10))));
        ring.resize(128);
        assert_eq!((ring.capacity(), ring.find(Psn::new(40))), (128, Some(read(40, 10))));
        ring.resize(0);
        assert_eq!((ring.capacity(), ring.find(Psn::new(40))), (0, None));
    }
}
