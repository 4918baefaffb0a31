//! The order of sending, and the room for what is under way.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{
    budget::{Budget, Share},
    destinations::Destinations,
    frames::FrameSenders,
    turns::{Turn, TurnState, Turns},
};
use crate::{congestion::WindowConfig, qp::Room, time::Instant};

/// Turns of queue pairs, and the room that they share: of READs, and on the way to each
/// destination. A queue pair without room waits for another to give some back.
pub(super) struct Sending {
    pub(super) turns: Turns,
    /// By queue pair.
    places: Vec<TurnState>,
    pub(super) frames: FrameSenders,
    /// The budget of READs, and the share of each queue pair.
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

    /// Number of places that queue pairs have had.
    pub(super) const fn places(&self) -> usize {
        self.places.len()
    }

    /// There is a queue pair at this place.
    pub(super) fn add_place(&mut self, index: usize) {
        if self.places.len() <= index {
            self.places.resize(index + 1, TurnState::default());
        }
    }

    /// The queue pair is gone. Returns those that waited for what it had, and can go on.
    pub(super) fn leave(&mut self, index: usize) -> [Option<usize>; 2] {
        self.frames.forget(index);
        let (budget, shares) = &mut self.reads;
        [budget.leave(shares, index), self.destinations.assign(index, None)]
    }

    /// Its peer is at this address. Returns one that waited and can go on.
    pub(super) fn assign(&mut self, index: usize, peer: Option<IpAddr>) -> Option<usize> {
        self.destinations.assign(index, peer)
    }

    /// Gives a queue pair a turn.
    #[inline]
    pub(super) fn make_ready(&mut self, index: usize) {
        if let Some(place) = self.places.get_mut(index) {
            self.turns.add(index, place);
        }
    }

    /// Begins the next turn, or goes on with one.
    #[inline]
    pub(super) fn begin(&mut self) -> Option<Turn> {
        let places = &mut self.places;
        self.turns.begin(|index| &mut places[index])
    }

    /// Ends a turn in which so many bytes were sent.
    #[inline]
    pub(super) fn end(&mut self, turn: Turn, sent: u64, has_more: bool) {
        self.turns.end(turn, sent, has_more, &mut self.places[turn.index]);
    }

    /// Interrupts it.
    #[inline]
    pub(super) fn interrupt(&mut self, turn: Turn, sent: u64) {
        self.turns.interrupt(turn, sent, &mut self.places[turn.index]);
    }

    /// Room for READs, and on the way to the peer, of a queue pair that has so much by now.
    #[inline]
    pub(super) fn rooms(&self, index: usize, asked: u64, in_flight: u64) -> (Room, Room) {
        let (budget, shares) = &self.reads;
        (budget.room(shares, index, asked), self.destinations.room(index, in_flight))
    }

    /// A queue pair has so much by now, and may wait for more. Returns those that can go on.
    #[inline]
    pub(super) fn record_rooms(
        &mut self,
        index: usize,
        reads: (u64, bool),
        flight: (u64, bool),
        now: Instant,
    ) -> [Option<usize>; 2] {
        let (budget, shares) = &mut self.reads;
        let (mut reader, mut sender) = (None, None);
        if !Share::is_noted(shares, index, reads.0, reads.1) {
            reader = budget.update(shares, index, reads.0, reads.1);
        }
        if !self.destinations.is_noted(index, flight.0, flight.1) {
            sender = self.destinations.update(index, flight.0, flight.1, now);
        }
        [reader, sender]
    }
}
