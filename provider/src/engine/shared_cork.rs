//! The cork of a shard, for those who do not have its lock.
//!
//! The models of concurrency (`models/`) run this file.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use roce_transport::time::Instant;

use super::schedule::cork::Cork;

/// The cork, under the engine's lock; until when something waits is read without.
#[derive(Debug, Default)]
pub(super) struct SharedCork {
    cork: Cork,
    /// In nanoseconds of the clock; 0: nothing does.
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

    /// Until when something waits, for those who do not have the lock.
    pub(super) fn until_shared(&self) -> Arc<AtomicU64> {
        self.until.clone()
    }

    /// Notes something that lets nothing wait that did not, and nothing leave.
    pub(super) const fn noting(&mut self) -> &mut Cork {
        &mut self.cork
    }

    /// Changes what waits, or until when.
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
