use alloc::sync::Arc;

use hashbrown::HashMap;
use slab::Slab;

use super::{error::ObjectError, timers::Timers};
use crate::{
    hash::IdHasher,
    ids::{CqId, PdId, SrqId, XrcdId},
    qp::{Common, QpType},
    time::Instant,
    work::{CompletionQueue, SharedQueue},
};

#[derive(Default)]
pub(super) struct Tables {
    pub(super) pds: Slab<()>,
    pub(super) xrcds: Slab<()>,
    /// Protection domains of address handles.
    pub(super) ahs: Slab<PdId>,
    pub(super) cqs: Slab<Arc<CompletionQueue>>,
    /// Of completion queues with a delayed event.
    cq_timers: Timers,
    /// Reference counts.
    users: HashMap<Used, usize, IdHasher>,
}

/// An object that others use. An XRC target counts only for its XRC domain: its other objects are
/// the current XRC SRQ's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Used {
    Pd(PdId),
    Cq(CqId),
    Srq(SrqId),
    Xrcd(XrcdId),
}

impl Used {
    pub(super) fn by_qp(common: &Common) -> impl Iterator<Item = Self> + use<> {
        let is_target = common.qp_type == QpType::XrcTarget;
        let [send_cq, recv_cq] = [&common.completions.send_cq, &common.receiving.cq]
            .map(|cq| cq.as_ref().filter(|_| !is_target).map(|cq| Self::Cq(cq.id())));
        let pd = (!is_target).then_some(Self::Pd(common.receiving.pd));
        let srq = common.receiving.srq.filter(|_| !is_target).map(Self::Srq);
        [pd, send_cq, recv_cq, srq, common.xrcd.map(Self::Xrcd)].into_iter().flatten()
    }

    pub(super) fn by_srq(srq: &SharedQueue) -> impl Iterator<Item = Self> + use<> {
        let xrc = srq.xrc.as_ref();
        let cq = xrc.map(|xrc| Self::Cq(xrc.cq.id()));
        let xrcd = xrc.map(|xrc| Self::Xrcd(xrc.xrcd));
        [Some(Self::Pd(srq.pd)), cq, xrcd].into_iter().flatten()
    }
}

impl Tables {
    pub(super) fn has_pd(&self, pd: PdId) -> bool {
        self.pds.contains(pd.0 as usize)
    }

    pub(super) fn check_unused(&self, used: Used) -> Result<(), ObjectError> {
        if self.users.contains_key(&used) { Err(ObjectError::InUse) } else { Ok(()) }
    }

    pub(super) fn add_user(&mut self, of: impl IntoIterator<Item = Used>) {
        for used in of {
            *self.users.entry(used).or_default() += 1;
        }
    }

    pub(super) fn remove_user(&mut self, of: impl IntoIterator<Item = Used>) {
        for used in of {
            let left = self.users.get_mut(&used).map(|count| {
                *count -= 1;
                *count
            });
            debug_assert!(left.is_some(), "{used:?} has no users");
            if left == Some(0) {
                self.users.remove(&used);
            }
        }
    }

    pub(super) fn use_pd(&mut self, pd: PdId) {
        self.add_user([Used::Pd(pd)]);
    }

    pub(super) fn leave_pd(&mut self, pd: PdId) {
        self.remove_user([Used::Pd(pd)]);
    }

    pub(super) fn owns(&self, cq: &Arc<CompletionQueue>) -> bool {
        self.cqs.get(cq.id().0 as usize).is_some_and(|own| Arc::ptr_eq(own, cq))
    }

    pub(super) fn pop_due_cq(&mut self, now: Instant, left: &mut usize) -> Option<usize> {
        let cqs = &self.cqs;
        self.cq_timers.pop_due(now, left, |index| cqs.get(index).and_then(|cq| cq.deadline()))
    }

    pub(super) fn next_cq_deadline(&mut self) -> Option<Instant> {
        let cqs = &self.cqs;
        self.cq_timers.next(|index| cqs.get(index).and_then(|cq| cq.deadline()))
    }

    pub(super) fn set_cq_timer(&mut self, index: usize) {
        self.cq_timers.set(index, self.cqs.get(index).and_then(|cq| cq.deadline()));
    }
}
