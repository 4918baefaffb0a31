//! Completion queues, polled without the adapter.

use alloc::sync::Arc;
use core::time::Duration;

use super::{
    completion::Wc,
    parts::{ArrayQueue, AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
    ring::Ring,
};
use crate::{ids::CqId, time::Instant};

/// Completions that notify an armed reader (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NotifyKind {
    /// Solicited or failed.
    Solicited = 1,
    /// Any.
    Next = 2,
}

const NOT_ARMED: u8 = 0;

/// Delays an armed queue's event (`ibv_moderate_cq`), default none. Completions of the armed kind
/// count, from arming.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CqModeration {
    /// Completions before the event (`cq_count`); 0: no limit.
    pub count: u16,
    /// Time after the first completion (`cq_period`), whole µs up to 65,535; 0: no limit.
    pub period: Duration,
}

impl CqModeration {
    /// 65,535 µs.
    pub const MAX_PERIOD: Duration = Duration::from_micros(u16::MAX as u64);
}

/// A bounded queue, polled without a lock. Polled completions make earlier memory writes visible.
#[derive(Debug)]
pub struct CompletionQueue {
    id: CqId,
    ring: Ring<(Wc, Validity)>,
    armed: AtomicU8,
    unpolled: Unpolled,
    overrun: AtomicBool,
    moderation: Moderation,
}

/// Storage for completions, allocated outside the adapter's lock.
#[derive(Debug)]
pub struct CqRoom(ArrayQueue<(Wc, Validity)>);

impl CqRoom {
    /// Storage for `completions`, at least one.
    #[must_use]
    pub fn new(completions: usize) -> Self {
        Self(ArrayQueue::new(completions))
    }

    /// Capacity.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// Replaced when a queue pair discards completions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity {
    discarded: Arc<AtomicBool>,
}

impl Validity {
    pub(crate) fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
    }

    pub(super) fn holds(&self) -> bool {
        !self.discarded.load(Ordering::Acquire)
    }
}

/// Completions since an empty poll. Without this, an event is lost unless pushes and arming are in
/// one order, as in `armed`.
#[derive(Debug, Default)]
struct Unpolled {
    /// A poll found none since the last event.
    found_none: AtomicBool,
    /// Solicited completions, now and at the empty poll.
    solicited: AtomicU32,
    solicited_before: AtomicU32,
}

impl Unpolled {
    /// Take this before polling.
    fn solicited(&self) -> u32 {
        self.solicited.load(Ordering::SeqCst)
    }

    fn find_none(&self, solicited: u32) {
        if self.solicited_before.load(Ordering::Relaxed) != solicited {
            self.solicited_before.store(solicited, Ordering::Relaxed);
        }
        if !self.found_none.load(Ordering::Relaxed) {
            self.found_none.store(true, Ordering::Relaxed);
        }
    }

    /// True if a completion of this kind came since the empty poll.
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

/// Used under the adapter's lock; atomic for sharing.
#[derive(Debug, Default)]
struct Moderation {
    count: AtomicU16,
    period_us: AtomicU16,
    /// Completions waiting for an event.
    waiting: AtomicU16,
    /// Event time in ns; `NEVER` without one.
    deadline: AtomicU64,
}

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    Quietly,
    /// Notify now.
    Waking,
    /// Notify at the [deadline](CompletionQueue::deadline).
    Deferred,
    /// First overrun; nothing more is accepted.
    Overrun,
    /// Dropped after an overrun.
    Lost,
}

impl CompletionQueue {
    pub(crate) fn new(id: CqId, room: CqRoom) -> Self {
        let moderation = Moderation { deadline: AtomicU64::new(NEVER), ..Moderation::default() };
        let (armed, overrun) = (AtomicU8::new(NOT_ARMED), AtomicBool::new(false));
        let unpolled = Unpolled::default();
        Self { id, ring: Ring::of(room.0), armed, unpolled, overrun, moderation }
    }

    /// Identifier.
    #[must_use]
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// Capacity.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.limit()
    }

    /// Completions held, discarded ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// True if empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True after an overrun, which also fails its queue pairs.
    #[must_use]
    pub fn has_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Moderation.
    #[must_use]
    pub fn moderation(&self) -> CqModeration {
        let Moderation { count, period_us, .. } = &self.moderation;
        let period = Duration::from_micros(period_us.load(Ordering::Relaxed).into());
        CqModeration { count: count.load(Ordering::Relaxed), period }
    }

    /// Polls up to `to.len()` completions; returns how many.
    pub fn poll(&self, to: &mut [Wc]) -> usize {
        to.iter_mut().map_while(|slot| self.pop().map(|wc| *slot = wc)).count()
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

    /// Arms for one event at the next completion of this kind, or stays armed for any.
    pub fn req_notify(&self, kind: NotifyKind) {
        self.armed.fetch_max(kind as u8, Ordering::SeqCst);
    }

    /// Arms without another poll; true, disarmed, if a completion came since an empty poll: notify
    /// the reader.
    pub fn req_notify_unpolled(&self, kind: NotifyKind) -> bool {
        self.req_notify(kind);
        self.unpolled.has(kind) && !self.is_empty() && self.disarm()
    }

    /// Storage missing for `capacity`.
    #[must_use]
    pub fn lacks(&self, capacity: usize) -> Option<CqRoom> {
        self.ring.lacks(capacity).map(CqRoom::new)
    }

    /// `Err`: more are held.
    pub(crate) fn resize(&self, capacity: usize, room: Option<CqRoom>) -> Result<(), usize> {
        self.ring.resize(capacity, room.map(|room| room.0))
    }

    /// True if an event is due.
    pub(crate) fn moderate(&self, count: u16, period_us: u16) -> bool {
        self.moderation.count.store(count, Ordering::Relaxed);
        self.moderation.period_us.store(period_us, Ordering::Relaxed);
        self.moderation.waiting.load(Ordering::Relaxed) > 0 && self.disarm()
    }

    /// Time to call [`expire`](Self::expire).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.moderation.deadline.load(Ordering::Relaxed);
        (deadline != NEVER).then(|| Instant::from_nanos(deadline))
    }

    /// True past the deadline: notify the reader.
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

    /// True if armed.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != NOT_ARMED
    }

    /// Disarms; true if armed before: notify the reader.
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
