//! Completion queues. The adapter fills them, and their owner empties them without asking the
//! adapter.

use alloc::sync::Arc;
use core::time::Duration;

use super::{
    completion::Wc,
    parts::{ArrayQueue, AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
    ring::Ring,
};
use crate::{ids::CqId, time::Instant};

/// Completions that wake a reader that armed the queue (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NotifyKind {
    /// Only one that the sender marked as solicited, or a failure.
    Solicited = 1,
    /// Any.
    Next = 2,
}

const NOT_ARMED: u8 = 0;

/// Time that an armed queue waits for more completions before it wakes its reader
/// (`ibv_moderate_cq`). Only completions of the kind it is armed for count, from the time of
/// arming. With both at zero, the default, it does not wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CqModeration {
    /// Number of completions that end the waiting (`cq_count`); 0: no limit.
    pub count: u16,
    /// Time after the first completion that ends it, in whole microseconds up to 65,535
    /// (`cq_period`). 0: no time limit, so no event comes until the count is reached.
    pub period: Duration,
}

impl CqModeration {
    /// The longest period: 65,535 µs.
    pub const MAX_PERIOD: Duration = Duration::from_micros(u16::MAX as u64);
}

/// Completions in order: bounded, taken without a lock, shared between an adapter and the queue's
/// owner. A completion that has been polled makes everything visible that was written to memory
/// before it.
#[derive(Debug)]
pub struct CompletionQueue {
    id: CqId,
    ring: Ring<(Wc, Validity)>,
    armed: AtomicU8,
    unpolled: Unpolled,
    overrun: AtomicBool,
    moderation: Moderation,
}

/// Room for completions. To make it takes as long as it is large, so those who have the adapter
/// behind a lock make it before they take that.
#[derive(Debug)]
pub struct CqRoom(ArrayQueue<(Wc, Validity)>);

impl CqRoom {
    /// Room for so many completions, at least one.
    #[must_use]
    pub fn new(completions: usize) -> Self {
        Self(ArrayQueue::new(completions))
    }

    /// Number of completions that it is for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// Validity of completions. Those of a queue pair share one until it discards them; then it gets
/// another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity {
    discarded: Arc<AtomicBool>,
}

impl Validity {
    /// Polling finds none of them any more.
    pub(crate) fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
    }

    pub(super) fn holds(&self) -> bool {
        !self.discarded.load(Ordering::Acquire)
    }
}

/// True if a completion has come since a taker found none. An event is lost unless additions and
/// requests for events are in one order, as with `armed`.
#[derive(Debug, Default)]
struct Unpolled {
    /// One did, and there was no event since.
    found_none: AtomicBool,
    /// Number of completions that were marked as solicited, and what it was when nothing was found.
    solicited: AtomicU32,
    solicited_before: AtomicU32,
}

impl Unpolled {
    /// To be asked before the queue is looked at.
    fn solicited(&self) -> u32 {
        self.solicited.load(Ordering::SeqCst)
    }

    /// Nothing was found.
    fn find_none(&self, solicited: u32) {
        if self.solicited_before.load(Ordering::Relaxed) != solicited {
            self.solicited_before.store(solicited, Ordering::Relaxed);
        }
        if !self.found_none.load(Ordering::Relaxed) {
            self.found_none.store(true, Ordering::Relaxed);
        }
    }

    /// True if what is in the queue came since, and one of this kind among it.
    fn has(&self, kind: NotifyKind) -> bool {
        let any = self.found_none.load(Ordering::Relaxed);
        any && match kind {
            NotifyKind::Next => true,
            NotifyKind::Solicited => {
                self.solicited() != self.solicited_before.load(Ordering::Relaxed)
            }
        }
    }
}

/// Members that only the adapter reads and writes, under its lock: atomic so that the queue can be
/// shared, no more.
#[derive(Debug, Default)]
struct Moderation {
    count: AtomicU16,
    period_us: AtomicU16,
    /// Completions since the queue was armed that wait for an event.
    waiting: AtomicU16,
    /// Time when they have waited long enough, in nanoseconds; `NEVER` while none wait, or time
    /// does not matter.
    deadline: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// Result of adding a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    Quietly,
    /// The queue was armed for such a completion: its reader is to be woken.
    Waking,
    /// The reader is to be woken later: the queue has got a [deadline](CompletionQueue::deadline).
    Deferred,
    /// Overrun. Returned once; the queue takes nothing more.
    Overrun,
    /// The queue has overflowed before.
    Lost,
}

impl CompletionQueue {
    pub(crate) fn new(id: CqId, room: CqRoom) -> Self {
        let moderation = Moderation { deadline: AtomicU64::new(NEVER), ..Moderation::default() };
        let (armed, overrun) = (AtomicU8::new(NOT_ARMED), AtomicBool::new(false));
        let unpolled = Unpolled::default();
        Self { id, ring: Ring::of(room.0), armed, unpolled, overrun, moderation }
    }

    /// Its name in the adapter.
    #[must_use]
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// Number of completions that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.limit()
    }

    /// Number of completions that it holds, those that were discarded included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// True if it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if a completion was lost for want of room. Such a queue takes no more, and its queue
    /// pairs are in error.
    #[must_use]
    pub fn has_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Time that it waits before it wakes its reader.
    #[must_use]
    pub fn moderation(&self) -> CqModeration {
        let Moderation { count, period_us, .. } = &self.moderation;
        let period = Duration::from_micros(period_us.load(Ordering::Relaxed).into());
        CqModeration { count: count.load(Ordering::Relaxed), period }
    }

    /// Takes the oldest completions, as many as there are and `to` holds; returns how many.
    pub fn poll(&self, to: &mut [Wc]) -> usize {
        let mut count = 0;
        for slot in to {
            match self.pop() {
                Some(wc) => *slot = wc,
                None => break,
            }
            count += 1;
        }
        count
    }

    /// Takes the oldest completion.
    pub fn pop(&self) -> Option<Wc> {
        let solicited = self.unpolled.solicited();
        while let Some((wc, validity)) = self.ring.pop() {
            if validity.holds() {
                return Some(wc);
            }
        }
        self.unpolled.find_none(solicited);
        None
    }

    /// Asks for one event at the next completion of this kind that is added from now on. A queue
    /// armed for any completion stays so when it is armed again for solicited ones.
    pub fn req_notify(&self, kind: NotifyKind) {
        self.armed.fetch_max(kind as u8, Ordering::SeqCst);
    }

    /// The same, for who does not look once more: returns true if one has come since a taker found
    /// nothing. Then the queue is not armed, and its reader is to be woken.
    pub fn req_notify_unpolled(&self, kind: NotifyKind) -> bool {
        self.req_notify(kind);
        self.unpolled.has(kind) && !self.is_empty() && self.disarm()
    }

    /// The room without which it cannot hold so many completions; `None`: it has that.
    #[must_use]
    pub fn lacks(&self, capacity: usize) -> Option<CqRoom> {
        self.ring.lacks(capacity).map(CqRoom::new)
    }

    /// Changes how many completions it can hold. `Err`: it holds so many, more than would fit.
    pub(crate) fn resize(&self, capacity: usize, room: Option<CqRoom>) -> Result<(), usize> {
        self.ring.resize(capacity, room.map(|room| room.0))
    }

    /// Sets the moderation. Returns whether the reader is to be woken now: an event that had been
    /// deferred is not deferred again.
    pub(crate) fn moderate(&self, count: u16, period_us: u16) -> bool {
        self.moderation.count.store(count, Ordering::Relaxed);
        self.moderation.period_us.store(period_us, Ordering::Relaxed);
        self.moderation.waiting.load(Ordering::Relaxed) > 0 && self.disarm()
    }

    /// Time at which [`expire`](Self::expire) is to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.moderation.deadline.load(Ordering::Relaxed);
        (deadline != NEVER).then(|| Instant::from_nanos(deadline))
    }

    /// Says whether the reader is to be woken because completions have waited long enough.
    pub(crate) fn expire(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now) && self.disarm()
    }

    pub(crate) fn push(
        &self,
        wc: Wc,
        validity: &Validity,
        solicited: bool,
        now: Instant,
    ) -> Pushed {
        if self.has_overrun() {
            return Pushed::Lost;
        }
        let solicited = solicited || wc.result.is_err();
        if self.ring.push((wc, validity.clone())).is_err() {
            self.overrun.store(true, Ordering::Release);
            return Pushed::Overrun;
        }
        if solicited {
            self.unpolled.solicited.fetch_add(1, Ordering::SeqCst);
        }
        let wanted = if solicited { NotifyKind::Solicited } else { NotifyKind::Next } as u8;
        let armed = self.armed.load(Ordering::SeqCst);
        if armed == NOT_ARMED || armed < wanted { Pushed::Quietly } else { self.wake_or_defer(now) }
    }

    fn wake_or_defer(&self, now: Instant) -> Pushed {
        let CqModeration { count, period } = self.moderation();
        let waiting = self.moderation.waiting.load(Ordering::Relaxed).saturating_add(1);
        let wakes = if count == 0 { period.is_zero() } else { waiting >= count };
        if wakes {
            self.disarm();
            return Pushed::Waking;
        }
        self.moderation.waiting.store(waiting, Ordering::Relaxed);
        if waiting > 1 || period.is_zero() {
            return Pushed::Quietly;
        }
        self.moderation.deadline.store(now.plus(period).as_nanos(), Ordering::Relaxed);
        Pushed::Deferred
    }

    /// True if it waits for a completion to wake its reader.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != NOT_ARMED
    }

    /// Ends the waiting; returns whether the queue was armed. The caller wakes the reader.
    pub fn disarm(&self) -> bool {
        self.unpolled.found_none.store(false, Ordering::Relaxed);
        self.moderation.waiting.store(0, Ordering::Relaxed);
        self.moderation.deadline.store(NEVER, Ordering::Relaxed);
        self.armed.swap(NOT_ARMED, Ordering::SeqCst) != NOT_ARMED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        addr::Qpn,
        work::{WcError, WcOk, WcOpcode},
    };

    fn ok(wr_id: u64) -> Wc {
        let result = Ok(WcOk::new(WcOpcode::Recv, 0));
        Wc { wr_id, qpn: Qpn::new(2), timestamp: Instant::ZERO, result }
    }

    fn push(cq: &CompletionQueue, wc: Wc, solicited: bool) -> Pushed {
        cq.push(wc, &Validity::default(), solicited, Instant::ZERO)
    }

    #[test]
    fn an_event_is_asked_for_once_and_only_for_its_kind() {
        let cq = CompletionQueue::new(CqId(0), CqRoom::new(16));
        assert_eq!(push(&cq, ok(1), true), Pushed::Quietly);
        cq.req_notify(NotifyKind::Solicited);
        assert_eq!(push(&cq, ok(2), false), Pushed::Quietly);
        assert_eq!(push(&cq, ok(3), true), Pushed::Waking);
        assert_eq!(push(&cq, ok(4), true), Pushed::Quietly);
        cq.req_notify(NotifyKind::Next);
        cq.req_notify(NotifyKind::Solicited);
        assert_eq!(push(&cq, ok(5), false), Pushed::Waking);
        cq.req_notify(NotifyKind::Solicited);
        assert_eq!(push(&cq, Wc { result: Err(WcError::FLUSHED), ..ok(6) }, false), Pushed::Waking);
    }

    /// A program that polls until the queue is empty, and asks then.
    #[test]
    fn what_comes_before_an_event_is_asked_for_causes_it_once() {
        let cq = CompletionQueue::new(CqId(0), CqRoom::new(16));
        let asks = |kind| cq.req_notify_unpolled(kind);
        push(&cq, ok(1), true);
        assert!(!asks(NotifyKind::Next), "nobody has looked");
        assert_eq!(push(&cq, ok(2), false), Pushed::Waking);
        assert!(!asks(NotifyKind::Next), "that has caused one");
        assert_eq!(cq.poll(&mut [Wc::UNUSED; 2]), 2);
        assert!(!asks(NotifyKind::Next), "they are gone");
        assert_eq!((cq.pop(), push(&cq, ok(3), false)), (None, Pushed::Waking));

        let mut all = [Wc::UNUSED; 8];
        assert_eq!((cq.poll(&mut all), push(&cq, ok(4), false)), (1, Pushed::Quietly));
        assert!(!asks(NotifyKind::Solicited));
        assert!(asks(NotifyKind::Next) && !cq.is_armed());
        assert!(!asks(NotifyKind::Next), "it has");
        cq.disarm();
        assert_eq!((cq.poll(&mut all), push(&cq, ok(5), true)), (1, Pushed::Quietly));
        assert!(asks(NotifyKind::Solicited));
        assert_eq!((cq.poll(&mut all), push(&cq, ok(6), false)), (1, Pushed::Quietly));
        assert!(!asks(NotifyKind::Solicited), "that was before");
        assert_eq!(push(&cq, ok(7), true), Pushed::Waking);
    }

    #[test]
    fn what_is_discarded_is_not_found() {
        let cq = CompletionQueue::new(CqId(0), CqRoom::new(16));
        let (one, other) = (Validity::default(), Validity::default());
        for (id, validity) in [(1, &one), (2, &other), (3, &one), (4, &one), (5, &other)] {
            cq.push(ok(id), validity, false, Instant::ZERO);
        }
        assert_eq!(cq.pop().map(|wc| wc.wr_id), Some(1));
        one.discard();
        let mut found = [Wc::UNUSED; 4];
        assert_eq!(cq.poll(&mut found), 2);
        assert_eq!([found[0].wr_id, found[1].wr_id], [2, 5]);
        assert!(cq.is_empty());
    }

    #[test]
    fn overflow_is_said_once_and_keeps_what_was_there() {
        let cq = CompletionQueue::new(CqId(0), CqRoom::new(2));
        assert_eq!(
            [1, 2, 3, 4].map(|id| push(&cq, ok(id), false)),
            [Pushed::Quietly, Pushed::Quietly, Pushed::Overrun, Pushed::Lost]
        );
        assert!(cq.has_overrun());
        assert_eq!(
            [cq.pop(), cq.pop(), cq.pop()].map(|wc| wc.map(|wc| wc.wr_id)),
            [Some(1), Some(2), None]
        );
    }
}
