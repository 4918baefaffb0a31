//! Cork of a shard; its end is read without the lock. `models/` checks this file.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use roce_transport::time::Instant;

use super::schedule::cork::Cork;

#[derive(Debug, Default)]
pub(super) struct SharedCork {
    cork: Cork,
    /// End in clock ns; 0: nothing is corked.
    until: Arc<AtomicU64>,
}

impl Deref for SharedCork {
    type Target = Cork;

    fn deref(&self) -> &Cork {
        &self.cork
    }
}

impl SharedCork {
    pub(super) fn new(cork: Cork) -> Self {
        Self { cork, until: Arc::default() }
    }

    pub(super) fn until_shared(&self) -> Arc<AtomicU64> {
        self.until.clone()
    }

    /// Access for observations that neither cork nor flush.
    pub(super) const fn observer(&mut self) -> &mut Cork {
        &mut self.cork
    }

    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Cork) -> R) -> R {
        let before = self.cork.until();
        let result = change(&mut self.cork);
        let after = self.cork.until();
        if before != after {
            self.until.store(after.map_or(0, Instant::as_nanos), Ordering::SeqCst);
        }
        result
    }
}
