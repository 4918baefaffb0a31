//! Objects of programs, besides queue pairs and what these work with.

use alloc::sync::Arc;

use slab::Slab;

use super::{
    timers::Timers,
    users::{Used, Users},
};
use crate::{ids::PdId, time::Instant, work::CompletionQueue};

/// Protection domains, XRC domains, address handles and completion queues, and what uses each: one
/// that is used is not destroyed.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) pds: Slab<()>,
    pub(super) xrcds: Slab<()>,
    /// Address handles, by the protection domain of each.
    pub(super) ahs: Slab<PdId>,
    pub(super) cqs: Slab<Arc<CompletionQueue>>,
    /// Of completion queues that have put an event off.
    pub(super) cq_timers: Timers,
    pub(super) users: Users,
}

impl Tables {
    pub(super) fn has_pd(&self, pd: PdId) -> bool {
        self.pds.contains(pd.0 as usize)
    }

    /// One more user of a protection domain.
    pub(super) fn use_pd(&mut self, pd: PdId) {
        self.users.add([Used::Pd(pd)]);
    }

    /// One less.
    pub(super) fn leave_pd(&mut self, pd: PdId) {
        self.users.remove([Used::Pd(pd)]);
    }

    /// True if a completion queue is one of these.
    pub(super) fn owns(&self, cq: &Arc<CompletionQueue>) -> bool {
        self.cqs.get(cq.id().0 as usize).is_some_and(|own| Arc::ptr_eq(own, cq))
    }

    /// A completion queue that has put an event off until now.
    pub(super) fn pop_due_cq(&mut self, now: Instant, left: &mut usize) -> Option<usize> {
        let cqs = &self.cqs;
        self.cq_timers.pop_due(now, left, |index| cqs.get(index).and_then(|cq| cq.deadline()))
    }

    /// Time at which the next of them is due.
    pub(super) fn next_cq_deadline(&mut self) -> Option<Instant> {
        let cqs = &self.cqs;
        self.cq_timers.next(|index| cqs.get(index).and_then(|cq| cq.deadline()))
    }

    pub(super) fn set_cq_timer(&mut self, index: usize) {
        self.cq_timers.set(index, self.cqs.get(index).and_then(|cq| cq.deadline()));
    }
}
