//! Send scheduler, with shared credits.

use alloc::{collections::VecDeque, vec::Vec};

use super::{
    budget::{Budget, Share},
    destinations::Destinations,
    turns::{Turn, TurnState, Turns, entry},
};
use crate::{
    congestion::WindowConfig,
    qp::{Credits, Qp},
    time::Instant,
};

pub(super) struct Sending {
    pub(super) turns: Turns,
    places: Vec<TurnState>,
    pub(super) frames: FrameSenders,
    reads: (Budget, Vec<Share>),
    pub(super) destinations: Destinations,
}

impl Sending {
    pub(super) fn new(read_budget: u64, window: WindowConfig) -> Self {
        Self {
            turns: Turns::default(),
            places: Vec::new(),
            frames: FrameSenders::default(),
            reads: (Budget::new(read_budget, u64::MAX), Vec::new()),
            destinations: Destinations::new(window),
        }
    }

    pub(super) const fn places(&self) -> usize {
        self.places.len()
    }

    pub(super) fn add_place(&mut self, index: usize) {
        entry(&mut self.places, index);
    }

    pub(super) fn leave(&mut self, index: usize) -> [Option<usize>; 2] {
        self.frames.forget(index);
        let (budget, shares) = &mut self.reads;
        [budget.leave(shares, index), self.destinations.assign(index, None)]
    }

    #[inline]
    pub(super) fn make_ready(&mut self, index: usize) {
        if let Some(place) = self.places.get_mut(index) {
            self.turns.add(index, place);
        }
    }

    #[inline]
    pub(super) fn begin(&mut self) -> Option<Turn> {
        let places = &mut self.places;
        self.turns.begin(|index| &mut places[index])
    }

    #[inline]
    pub(super) fn end(&mut self, turn: Turn, sent: u64, has_more: bool) {
        self.turns.end(turn, sent, has_more, &mut self.places[turn.index]);
    }

    #[inline]
    pub(super) fn interrupt(&mut self, turn: Turn, sent: u64) {
        self.turns.interrupt(turn, sent, &mut self.places[turn.index]);
    }

    /// Credits for READs and for the destination.
    #[inline]
    pub(super) fn headroom(&self, index: usize, qp: &Qp) -> (Credits, Credits) {
        let (budget, shares) = &self.reads;
        let reads = budget.credits(shares, index, qp.reads().0);
        (reads, self.destinations.credits(index, qp.flight().0))
    }

    /// Returns queue pairs that may continue.
    #[inline]
    pub(super) fn record_headroom(
        &mut self,
        index: usize,
        qp: &mut Qp,
        now: Instant,
    ) -> [Option<usize>; 2] {
        if qp.take_lost() {
            self.destinations.on_loss(index, now);
        }
        let (budget, shares) = &mut self.reads;
        let (mut reader, mut sender) = (None, None);
        let (taken, waits) = qp.reads();
        if !Share::is_recorded(shares, index, taken, waits) {
            reader = budget.update(shares, index, taken, waits);
        }
        let (taken, waits) = qp.flight();
        if !self.destinations.is_recorded(index, taken, waits) {
            sender = self.destinations.update(index, taken, waits, now);
        }
        [reader, sender]
    }
}

/// Turns of raw packet queue pairs, one frame each.
#[derive(Default, Debug)]
pub(super) struct FrameSenders {
    /// `None`: the link carries no frames.
    pub(super) mtu: Option<u32>,
    pub(super) line: VecDeque<usize>,
}

impl FrameSenders {
    pub(super) fn add(&mut self, index: usize) {
        // few queue pairs
        if !self.line.contains(&index) {
            self.line.push_back(index);
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.line.retain(|&other| other != index);
    }
}
