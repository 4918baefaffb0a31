use alloc::sync::Arc;

use slab::Slab;

use super::{
    timers::Timers,
    users::{Used, Users},
};
use crate::{ids::PdId, time::Instant, work::CompletionQueue};

#[derive(Default)]
pub(super) struct Tables {
    pub(super) pds: Slab<()>,
    pub(super) xrcds: Slab<()>,
    /// Protection domains of address handles.
    pub(super) ahs: Slab<PdId>,
    pub(super) cqs: Slab<Arc<CompletionQueue>>,
    /// Of completion queues with a delayed event.
    pub(super) cq_timers: Timers,
    pub(super) users: Users,
}

impl Tables {
    pub(super) fn has_pd(&self, pd: PdId) -> bool {
        self.pds.contains(pd.0 as usize)
    }

    pub(super) fn use_pd(&mut self, pd: PdId) {
        self.users.add([Used::Pd(pd)]);
    }

    pub(super) fn leave_pd(&mut self, pd: PdId) {
        self.users.remove([Used::Pd(pd)]);
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
