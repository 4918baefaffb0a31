//! READs and atomics remembered for duplicates (9.7.5.1.4, C9-105).

use alloc::collections::VecDeque;

use crate::{
    bounded,
    psn::{Msn, Psn},
    wire::{AtomicEth, Operation, Reth},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remembered {
    pub(crate) first_psn: Psn,
    pub(crate) packets: u32,
    /// Of the response.
    pub(crate) msn: Msn,
    pub(crate) op: RememberedOp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RememberedOp {
    /// A duplicate is executed too.
    Read(Reth),
    /// A duplicate gets `found`: an atomic executes once.
    Atomic { operation: Operation, eth: AtomicEth, found: u64 },
}

/// The agreed limit is rounded up to a power of two, as in rxe.
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

    pub(crate) fn resize(&mut self, agreed: u8) {
        self.capacity = capacity(agreed);
        let surplus = self.entries.len().saturating_sub(self.capacity);
        self.entries.drain(..surplus);
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn remember(&mut self, entry: Remembered) {
        bounded::push(&mut self.entries, entry, self.capacity);
    }

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

/// ATOMIC WRITEs and FLUSHes waiting or remembered: above a requester's window.
pub(crate) const PLACED: usize = 512;

/// Unknown PSNs get no response, which would confirm execution: a restarted peer's PSNs may look
/// old.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    responded: VecDeque<(Psn, Msn)>,
}

impl Placements {
    pub(crate) fn remember(&mut self, psn: Psn, msn: Msn) {
        bounded::push(&mut self.responded, (psn, msn), PLACED);
    }

    pub(crate) fn find(&self, psn: Psn) -> Option<Msn> {
        self.responded.iter().rev().find(|(its, _)| *its == psn).map(|(_, msn)| *msn)
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
