//! Completion counters: how much has completed, without a completion for each request.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;

use super::request::SendOp;
use crate::wire::Operation;

/// Unit in which a completion counter counts successful requests (`ibv_comp_cntr_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counted {
    /// The requests.
    Requests,
    /// Their bytes.
    Bytes,
}

bitflags! {
    /// Operations of a queue pair that a completion counter counts (`ibv_qp_attach_comp_cntr_op`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CountedOps: u32 {
        /// SENDs of its own.
        const SEND = 1;
        /// Receive requests of its own, those that a WRITE with immediate has taken included.
        const RECV = 1 << 1;
        /// READs of its own.
        const READ = 1 << 2;
        /// READs of the peer.
        const REMOTE_READ = 1 << 3;
        /// WRITEs of its own.
        const WRITE = 1 << 4;
        /// WRITEs of the peer.
        const REMOTE_WRITE = 1 << 5;
    }
}

impl CountedOps {
    /// The one that a send request is; none for those that are not counted.
    pub(crate) const fn of_send(op: &SendOp) -> Self {
        match op {
            SendOp::Send { .. } | SendOp::SendTo { .. } | SendOp::SendInvalidate { .. } => {
                Self::SEND
            }
            SendOp::Write { .. } => Self::WRITE,
            SendOp::Read { .. } => Self::READ,
            _ => Self::empty(),
        }
    }

    /// The one that a request of the peer is; none for those that are not counted.
    pub(crate) const fn of_request(operation: Operation) -> Self {
        use Operation as Op;
        match operation {
            Op::ReadRequest => Self::REMOTE_READ,
            Op::WriteFirst
            | Op::WriteMiddle
            | Op::WriteLast
            | Op::WriteLastImm
            | Op::WriteOnly
            | Op::WriteOnlyImm => Self::REMOTE_WRITE,
            _ => Self::empty(),
        }
    }
}

/// Completion counter (`ibv_comp_cntr`): counts what completes on the queue pairs that it is
/// attached to, signaled or not, and apart from that those that complete in error. Both numbers
/// start over at zero after [`u64::MAX`].
#[derive(Debug)]
pub struct CompletionCounter {
    counted: Counted,
    completed: AtomicU64,
    failed: AtomicU64,
}

impl CompletionCounter {
    /// One with both numbers at zero.
    #[must_use]
    pub const fn new(counted: Counted) -> Self {
        Self { counted, completed: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }

    /// Number of requests that have succeeded, or of their bytes.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Number of requests that have failed, those that were flushed included.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Acquire)
    }

    /// Sets the first number.
    pub fn set_completed(&self, number: u64) {
        self.completed.store(number, Ordering::Release);
    }

    /// Sets the second number.
    pub fn set_failed(&self, number: u64) {
        self.failed.store(number, Ordering::Release);
    }

    /// Adds to the first number.
    pub fn add_completed(&self, number: u64) {
        self.completed.fetch_add(number, Ordering::AcqRel);
    }

    /// Adds to the second number.
    pub fn add_failed(&self, number: u64) {
        self.failed.fetch_add(number, Ordering::AcqRel);
    }
}

/// A queue pair's completion counters.
#[derive(Debug, Default)]
pub(crate) struct CompletionCounters {
    attached: Vec<(CountedOps, Arc<CompletionCounter>)>,
}

impl CompletionCounters {
    /// Attaches one, if none counts any of these operations yet.
    pub(crate) fn attach(&mut self, ops: CountedOps, counter: Arc<CompletionCounter>) -> bool {
        let free = !self.attached.iter().any(|(others, _)| others.intersects(ops));
        if free {
            self.attached.push((ops, counter));
        }
        free
    }

    /// True if nothing is counted.
    pub(crate) const fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    /// An operation has ended, and has moved so many bytes if it succeeded.
    pub(crate) fn count(&self, op: CountedOps, bytes: Option<u32>) {
        let Some((_, counter)) = self.attached.iter().find(|(ops, _)| ops.intersects(op)) else {
            return;
        };
        match bytes {
            None => counter.add_failed(1),
            Some(bytes) if counter.counted == Counted::Bytes => counter.add_completed(bytes.into()),
            Some(_) => counter.add_completed(1),
        }
    }
}
