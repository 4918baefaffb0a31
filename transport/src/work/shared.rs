//! Shared receive queues (10.2.9).

use alloc::{collections::BTreeSet, sync::Arc};

use hashbrown::HashMap;

use super::{CompletionQueue, queue::RecvQueue};
use crate::{
    hash::IdHasher,
    ids::{PdId, Qpn, SrqId, XrcdId},
    named::errors,
};

pub(crate) type SrqTable = HashMap<SrqId, SharedQueue, IdHasher>;

/// Sizes of a shared receive queue (`ibv_srq_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqAttr {
    /// Receive requests.
    pub max_wr: u32,
    /// SGEs per request.
    pub max_sge: u32,
}

/// Attributes and state of a shared receive queue (`ibv_query_srq`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqInfo {
    /// Sizes.
    pub attr: SrqAttr,
    /// Raises an event once below; 0: none.
    pub limit: u32,
    /// Posted requests.
    pub posted: u32,
}

errors! {
    /// Modify error; nothing changed.
    #[non_exhaustive]
    SrqError {
        UnknownSrq "no such shared receive queue";
        Size(u32) "max_wr is out of range; expected 1 to {0}";
        Posted(u32) "{0} receive requests are posted, more than the new size";
        Limit(u32) "the limit is larger than max_wr; at most {0}";
    }
}

pub(crate) struct SharedQueue {
    pub(crate) pd: PdId,
    pub(crate) queue: RecvQueue,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) xrc: Option<XrcPart>,
}

pub(crate) struct XrcPart {
    pub(crate) xrcd: XrcdId,
    pub(crate) cq: Arc<CompletionQueue>,
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

    /// True once below the limit.
    pub(crate) fn passes_limit(&mut self) -> bool {
        let passes = self.queue.len() < self.limit;
        if passes {
            self.limit = 0;
        }
        passes
    }
}
