//! Terms of an address's owners, in memory that the processes at the address share.
//!
//! A process is the owner for one term. Who begins the next one is the owner from then on, whether
//! the one before has ended, or is only stopped, by a signal or by a debugger, with all that it has
//! still open. That one sees, when it goes on, that its term is over. An owner counts its rounds, so
//! that the others see that it goes on. The memory also says which process has which [member
//! socket](super::members).

use std::{
    fs::File,
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use roce_transport::{mem::Memory, share::IdPartition, time::Instant};

use super::members::MemberPlace;
use crate::{
    link::{rings::SILENCE, sealed},
    region::MmapMemory,
};

/// Length of the memory.
pub(super) const SIZE: u64 = 4096;

/// Words of the memory, each in a cache line of its own.
const TERM: usize = 0;
const ROUNDS: usize = 8;
/// Not zero from when the member sockets are made, or cannot be. It is tried once, so that all
/// processes have the same.
const MEMBERS_TRIED: usize = 16;
/// Partition of the process that has claimed a member socket, at the socket's place behind this.
const MEMBERS: usize = 24;

/// Terms of an address's owners, as one process sees them.
pub(super) struct Terms {
    memory: MmapMemory,
    /// Term and rounds when they were last looked at, and since when they are these.
    seen: (u64, u64),
    since: Instant,
}

impl Terms {
    /// `memory` has [`SIZE`] bytes.
    pub(super) fn new(memory: &File) -> io::Result<Self> {
        let memory = sealed::map(memory, SIZE)?;
        Ok(Self { memory, seen: (0, 0), since: Instant::ZERO })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.memory.words().unwrap_or_default()[index]
    }

    /// The term that runs.
    pub(super) fn current(&self) -> u64 {
        self.word(TERM).load(Ordering::Acquire)
    }

    /// Begins the term after this one, unless another process has done so before.
    pub(super) fn begin_after(&self, term: u64) -> Option<u64> {
        let next = term.wrapping_add(1);
        let swapped =
            self.word(TERM).compare_exchange(term, next, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok().then_some(next)
    }

    /// Counts a round of the owner's.
    pub(super) fn count_round(&self) {
        let rounds = self.word(ROUNDS);
        rounds.store(rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// True for the first process that asks: it is to make the member sockets.
    pub(super) fn begin_members(&self) -> bool {
        self.word(MEMBERS_TRIED).swap(1, Ordering::AcqRel) == 0
    }

    /// Partition of the process that has, or had last, the member socket at this place.
    pub(super) fn member(&self, place: MemberPlace) -> Option<IdPartition> {
        let partition = self.word(MEMBERS + usize::from(place.get())).load(Ordering::Acquire);
        u8::try_from(partition).ok().and_then(IdPartition::new)
    }

    /// The process that has claimed the member socket at this place has this partition.
    pub(super) fn set_member(&self, place: MemberPlace, partition: IdPartition) {
        let word = self.word(MEMBERS + usize::from(place.get()));
        word.store(partition.get().into(), Ordering::Release);
    }

    /// Looks from now on whether the owner goes on.
    pub(super) fn watch(&mut self, now: Instant) {
        (self.seen, self.since) = (self.now_seen(), now);
    }

    /// The term that runs, if its owner has not gone on for some time.
    pub(super) fn silent(&mut self, now: Instant) -> Option<u64> {
        if self.now_seen() != self.seen {
            self.watch(now);
        }
        (now.since(self.since) >= SILENCE).then_some(self.seen.0)
    }

    fn now_seen(&self) -> (u64, u64) {
        (self.current(), self.word(ROUNDS).load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_begins_a_term() {
        let memory = sealed::create("test", SIZE).unwrap();
        let [mut a, mut b] = [(); 2].map(|()| Terms::new(&memory).unwrap());
        assert_eq!((a.begin_after(0), b.begin_after(0)), (Some(1), None));
        assert_eq!((a.current(), b.current(), b.begin_after(1)), (1, 1, Some(2)));
        let at = |part: u32| Instant::ZERO.plus(SILENCE * part / 2);
        b.watch(at(0));
        assert_eq!(b.silent(at(1)), None);
        a.count_round();
        assert_eq!([2, 3, 4].map(|part| b.silent(at(part))), [None, None, Some(2)]);
        a.begin_after(2).unwrap();
        assert_eq!([5, 7].map(|part| b.silent(at(part))), [None, Some(3)]);
        a.watch(at(7));
        assert_eq!(a.silent(at(8)), None);
    }
}
