//! Completion queues. The adapter fills them, and their owner empties them without asking the adapter.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crossbeam_queue::ArrayQueue;

use super::completion::Wc;

/// Names a completion queue of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);

/// Which completions wake a reader that armed the queue (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ArmKind {
    /// Only one that the sender marked as solicited, or a failure.
    Solicited = 1,
    /// Any.
    Next = 2,
}

const NOT_ARMED: u8 = 0;

/// A ring of completions: bounded, lock-free, shared between an adapter and the queue's owner. A completion that has been
/// polled makes everything visible that was written to memory before it.
#[derive(Debug)]
pub struct CompletionQueue {
    id: CqId,
    ring: ArrayQueue<Wc>,
    armed: AtomicU8,
    overrun: AtomicBool,
}

/// What adding a completion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    Quietly,
    /// The queue was armed for such a completion: its reader wants to know.
    Waking,
    /// No room. Said once; the queue takes nothing more.
    Overrun,
    /// It has overflowed before.
    Lost,
}

impl CompletionQueue {
    pub(crate) fn new(id: CqId, capacity: usize) -> Self {
        Self { id, ring: ArrayQueue::new(capacity), armed: AtomicU8::new(NOT_ARMED), overrun: AtomicBool::new(false) }
    }

    /// Its name in the adapter.
    #[must_use]
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// How many completions it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// How many it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether a completion was lost for want of room. Such a queue is dead, and its queue pairs are in error.
    #[must_use]
    pub fn has_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Takes the oldest completions, as many as there are and `to` holds; returns how many.
    pub fn poll(&self, to: &mut [Wc]) -> usize {
        let mut count = 0;
        for slot in to {
            match self.ring.pop() {
                Some(wc) => *slot = wc,
                None => break,
            }
            count += 1;
        }
        count
    }

    /// Takes the oldest completion.
    pub fn pop(&self) -> Option<Wc> {
        self.ring.pop()
    }

    /// Asks for one event at the next completion of this kind that is added from now on. A queue armed for any completion
    /// stays so when it is armed again for solicited ones.
    pub fn arm(&self, kind: ArmKind) {
        self.armed.fetch_max(kind as u8, Ordering::SeqCst);
    }

    pub(crate) fn push(&self, wc: Wc, solicited: bool) -> Pushed {
        if self.has_overrun() {
            return Pushed::Lost;
        }
        let solicited = solicited || wc.result.is_err();
        if self.ring.push(wc).is_err() {
            self.overrun.store(true, Ordering::Release);
            return Pushed::Overrun;
        }
        let wanted = if solicited { ArmKind::Solicited } else { ArmKind::Next } as u8;
        let armed = self.armed.load(Ordering::SeqCst);
        if armed != NOT_ARMED && armed >= wanted {
            self.armed.store(NOT_ARMED, Ordering::SeqCst);
            Pushed::Waking
        } else {
            Pushed::Quietly
        }
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
        Wc { wr_id, qpn: Qpn::new(2), result }
    }

    #[test]
    fn an_event_is_asked_for_once_and_only_for_its_kind() {
        let cq = CompletionQueue::new(CqId(0), 16);
        assert_eq!(cq.push(ok(1), true), Pushed::Quietly);
        cq.arm(ArmKind::Solicited);
        assert_eq!(cq.push(ok(2), false), Pushed::Quietly);
        assert_eq!(cq.push(ok(3), true), Pushed::Waking);
        assert_eq!(cq.push(ok(4), true), Pushed::Quietly);
        cq.arm(ArmKind::Next);
        cq.arm(ArmKind::Solicited);
        assert_eq!(cq.push(ok(5), false), Pushed::Waking);
        cq.arm(ArmKind::Solicited);
        assert_eq!(cq.push(Wc { result: Err(WcError::FLUSHED), ..ok(6) }, false), Pushed::Waking);
    }

    #[test]
    fn overflow_is_said_once_and_keeps_what_was_there() {
        let cq = CompletionQueue::new(CqId(0), 2);
        assert_eq!(
            [1, 2, 3, 4].map(|id| cq.push(ok(id), false)),
            [Pushed::Quietly, Pushed::Quietly, Pushed::Overrun, Pushed::Lost]
        );
        assert!(cq.has_overrun());
        assert_eq!([cq.pop(), cq.pop(), cq.pop()].map(|wc| wc.map(|wc| wc.wr_id)), [Some(1), Some(2), None]);
    }
}
