//! State in memory shared by the processes at an address: the owner's term, the partitions with
//! [member sockets](super::members), and each partition's services.
//!
//! A process is the owner for one term. The process that begins the next term becomes the owner.
//! The former owner, perhaps stopped meanwhile, sees that its term is over. An owner counts its
//! rounds to show that it runs.

use std::{
    fs::File,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use roce_transport::{cm::ServiceId, mem::Memory, share::IdPartition, time::Instant};

use super::members::MemberPlace;
use crate::{
    link::{ensure, sealed},
    region::MmapMemory,
};

/// Time after which an inactive process counts as stopped. Connections wait longer before they give
/// up: 8 times 67 ms with the usual attributes.
pub(super) const SILENCE: Duration = Duration::from_millis(100);

/// Indices of words; words that change often have a cache line each.
const TERM: usize = 0;
const ROUNDS: usize = 8;
/// Not zero once a process has begun to make the member sockets.
const MEMBERS_TRIED: usize = 16;
/// Partitions of processes with member sockets, by place.
const MEMBERS: usize = 24;
/// Numbers of services, by partition.
const SERVICE_COUNTS: usize = 64;
const SERVICES: usize = 512;
const MAX_SERVICES: usize = 4096;

pub(super) const SIZE: u64 = 8 * (SERVICES + IdPartition::COUNT as usize * MAX_SERVICES) as u64;

pub(super) struct SharedState {
    memory: MmapMemory,
    /// Term and rounds last seen, unchanged since `since`.
    seen: (u64, u64),
    since: Instant,
}

impl SharedState {
    pub(super) fn new(memory: &File) -> io::Result<Self> {
        let memory = sealed::map(memory, SIZE)?;
        Ok(Self { memory, seen: (0, 0), since: Instant::ZERO })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.memory.words().unwrap_or_default()[index]
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    pub(super) fn current(&self) -> u64 {
        self.get(TERM)
    }

    /// Begins the term after this one, unless another process already has.
    pub(super) fn begin_after(&self, term: u64) -> Option<u64> {
        let next = term.wrapping_add(1);
        let swapped =
            self.word(TERM).compare_exchange(term, next, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok().then_some(next)
    }

    pub(super) fn count_round(&self) {
        let rounds = self.word(ROUNDS);
        rounds.store(rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// True for the first caller, which makes the member sockets.
    pub(super) fn begin_members(&self) -> bool {
        self.word(MEMBERS_TRIED).swap(1, Ordering::AcqRel) == 0
    }

    /// Partition of the present or last process with the member socket at this place.
    pub(super) fn member(&self, place: MemberPlace) -> Option<IdPartition> {
        let partition = self.get(MEMBERS + usize::from(place.get()));
        u8::try_from(partition).ok().and_then(IdPartition::new)
    }

    pub(super) fn set_member(&self, place: MemberPlace, partition: IdPartition) {
        self.set(MEMBERS + usize::from(place.get()), partition.get().into());
    }

    /// Errors: [`io::ErrorKind::StorageFull`] if there are too many.
    pub(super) fn set_services(
        &self,
        partition: IdPartition,
        services: &[ServiceId],
    ) -> io::Result<()> {
        ensure(services.len() <= MAX_SERVICES, io::ErrorKind::StorageFull)?;
        for (place, service) in (Self::services(partition)..).zip(services) {
            self.set(place, service.0);
        }
        // after the services that this counts
        self.set(SERVICE_COUNTS + usize::from(partition.get()), services.len() as u64);
        Ok(())
    }

    /// Processes that list a service: one, unless a list has just changed or a process has ended.
    pub(super) fn listeners(&self, service: ServiceId) -> impl Iterator<Item = IdPartition> {
        IdPartition::all().filter(move |&partition| {
            let count = self.get(SERVICE_COUNTS + usize::from(partition.get()));
            let count = usize::try_from(count).map_or(MAX_SERVICES, |it| it.min(MAX_SERVICES));
            let first = Self::services(partition);
            (first..first + count).any(|place| self.get(place) == service.0)
        })
    }

    const fn services(partition: IdPartition) -> usize {
        SERVICES + (partition.get() as usize - 1) * MAX_SERVICES
    }

    pub(super) fn watch(&mut self, now: Instant) {
        (self.seen, self.since) = (self.now_seen(), now);
    }

    /// True if the owner has made no progress for [`SILENCE`].
    pub(super) fn is_silent(&mut self, now: Instant) -> bool {
        if self.now_seen() != self.seen {
            self.watch(now);
        }
        now.since(self.since) >= SILENCE
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
        let [mut a, mut b] = [(); 2].map(|()| SharedState::new(&memory).unwrap());
        assert_eq!((a.begin_after(0), b.begin_after(0)), (Some(1), None));
        assert_eq!((a.current(), b.current(), b.begin_after(1)), (1, 1, Some(2)));
        let at = |part: u32| Instant::ZERO.plus(SILENCE * part / 2);
        b.watch(at(0));
        assert!(!b.is_silent(at(1)));
        a.count_round();
        assert_eq!([2, 3, 4].map(|part| b.is_silent(at(part))), [false, false, true]);
        a.begin_after(2).unwrap();
        assert_eq!([5, 7].map(|part| b.is_silent(at(part))), [false, true]);
        a.watch(at(7));
        assert!(!a.is_silent(at(8)));
    }

    #[test]
    fn a_service_is_found_by_who_listens_for_it() {
        let memory = sealed::create("test", SIZE).unwrap();
        let state = SharedState::new(&memory).unwrap();
        let all: Vec<_> = IdPartition::all().collect();
        let (first, last) = (all[0], *all.last().unwrap());
        let found = |service| state.listeners(ServiceId(service)).collect::<Vec<_>>();
        let count = |partition: IdPartition, count| {
            state.set(SERVICE_COUNTS + usize::from(partition.get()), count);
        };
        assert_eq!(found(0), []);
        for (partition, service) in [(first, 0), (last, u64::MAX)] {
            let mut all = vec![ServiceId(0); MAX_SERVICES - 1];
            all.push(ServiceId(service));
            state.set_services(partition, &all).unwrap();
            all.push(ServiceId(5));
            state.set_services(partition, &all).unwrap_err();
        }
        assert_eq!(found(u64::MAX), [last]);
        assert_eq!(found(0), [first, last]);
        // counts from other processes are bounded
        count(last, u64::MAX);
        assert_eq!(found(u64::MAX), [last]);
        count(first, MAX_SERVICES as u64 - 1);
        count(last, 1);
        assert_eq!(found(0), [first, last]);
        count(last, 0);
        assert_eq!(found(0), [first]);
    }
}
