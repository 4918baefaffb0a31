//! Shared receive queues: receive requests for whichever queue pair needs one first (10.2.9).

use alloc::{collections::BTreeSet, sync::Arc};

use hashbrown::HashMap;
use thiserror::Error;

use super::{CompletionQueue, queue::RecvQueue};
use crate::{
    hash::IdHasher,
    ids::{PdId, Qpn, SrqId, XrcdId},
};

/// The shared receive queues of an adapter.
pub(crate) type SrqTable = HashMap<SrqId, SharedQueue, IdHasher>;

/// Sizes of a shared receive queue (`ibv_srq_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqAttr {
    /// Receive requests at once.
    pub max_wr: u32,
    /// Elements in one request's list.
    pub max_sge: u32,
}

/// Attributes and state of a shared receive queue (`ibv_query_srq`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqInfo {
    /// Sizes.
    pub attr: SrqAttr,
    /// With fewer requests than this an event is raised, once; 0: none is.
    pub limit: u32,
    /// Requests that are posted and not taken.
    pub posted: u32,
}

/// Reason why a shared receive queue cannot be changed as asked. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum SrqError {
    /// There is no such queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// More requests than the adapter grants, or none.
    #[error("max_wr must be within 1..={0}")]
    Size(u32),
    /// More requests are posted than it would hold.
    #[error("{0} requests are posted, more than it would hold")]
    Posted(u32),
    /// The limit is beyond the queue's size.
    #[error("the limit must not be more than max_wr, {0}")]
    Limit(u32),
}

/// A shared receive queue.
pub(crate) struct SharedQueue {
    pub(crate) pd: PdId,
    pub(crate) queue: RecvQueue,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    /// Of an XRC SRQ.
    pub(crate) xrc: Option<XrcPart>,
}

/// The part that makes a shared receive queue an XRC SRQ: it is reached from any target of a
/// domain, and completes in a queue of its own.
pub(crate) struct XrcPart {
    pub(crate) xrcd: XrcdId,
    pub(crate) cq: Arc<CompletionQueue>,
    /// Targets that serve it just now.
    pub(crate) targets: BTreeSet<Qpn>,
}

impl XrcPart {
    pub(crate) const fn new(xrcd: XrcdId, cq: Arc<CompletionQueue>) -> Self {
        Self { xrcd, cq, targets: BTreeSet::new() }
    }
}

impl SharedQueue {
    pub(crate) const fn new(pd: PdId, attr: SrqAttr, xrc: Option<XrcPart>) -> Self {
        Self { pd, queue: RecvQueue::new(attr.max_wr), max_sge: attr.max_sge, limit: 0, xrc }
    }

    pub(crate) fn info(&self) -> SrqInfo {
        SrqInfo {
            attr: SrqAttr { max_wr: self.queue.capacity(), max_sge: self.max_sge },
            limit: self.limit,
            posted: self.queue.len(),
        }
    }

    /// True if the limit was just passed: once, until it is set again.
    pub(crate) fn passes_limit(&mut self) -> bool {
        let passes = self.queue.len() < self.limit;
        if passes {
            self.limit = 0;
        }
        passes
    }
}
