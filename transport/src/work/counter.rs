use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;

use super::request::SendOp;
use crate::wire::Operation;

/// Unit of a completion counter (`ibv_comp_cntr_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counted {
    /// Requests.
    Requests,
    /// Bytes.
    Bytes,
}

bitflags! {
    /// Operations to count (`ibv_qp_attach_comp_cntr_op`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CountedOps: u32 {
        /// Own SENDs.
        const SEND = 1;
        /// Own receives, with WRITEs with immediate.
        const RECV = 1 << 1;
        /// Own READs.
        const READ = 1 << 2;
        /// The peer's READs.
        const REMOTE_READ = 1 << 3;
        /// Own WRITEs.
        const WRITE = 1 << 4;
        /// The peer's WRITEs.
        const REMOTE_WRITE = 1 << 5;
    }
}

impl CountedOps {
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

    pub(crate) const fn of_request(operation: Operation) -> Self {
        match operation {
            Operation::ReadRequest => Self::REMOTE_READ,
            operation if operation.is_write() => Self::REMOTE_WRITE,
            _ => Self::empty(),
        }
    }
}

/// A completion counter (`ibv_comp_cntr`) of successes and failures, which both wrap.
#[derive(Debug)]
pub struct CompletionCounter {
    counted: Counted,
    completed: AtomicU64,
    failed: AtomicU64,
}

impl CompletionCounter {
    /// Counter at zero.
    #[must_use]
    pub const fn new(counted: Counted) -> Self {
        Self { counted, completed: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }

    /// Successful requests or bytes.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Failed and flushed requests.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Acquire)
    }

    /// Sets the successes.
    pub fn set_completed(&self, number: u64) {
        self.completed.store(number, Ordering::Release);
    }

    /// Sets the failures.
    pub fn set_failed(&self, number: u64) {
        self.failed.store(number, Ordering::Release);
    }

    /// Adds successes.
    pub fn add_completed(&self, number: u64) {
        self.completed.fetch_add(number, Ordering::AcqRel);
    }

    /// Adds failures.
    pub fn add_failed(&self, number: u64) {
        self.failed.fetch_add(number, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
pub(crate) struct CompletionCounters {
    attached: Vec<(CountedOps, Arc<CompletionCounter>)>,
}

impl CompletionCounters {
    /// Returns false if an operation has a counter.
    pub(crate) fn attach(&mut self, ops: CountedOps, counter: Arc<CompletionCounter>) -> bool {
        let free = !self.attached.iter().any(|(others, _)| others.intersects(ops));
        if free {
            self.attached.push((ops, counter));
        }
        free
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    /// `bytes` is `None` for a failure.
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
