use std::{
    ops::{Deref, DerefMut},
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{
    processor::{hint, thread},
    schedule::times::{GIVE_WAY, GIVE_WAY_SPIN},
    shard::Shard,
};
use crate::{clock, region::Section, sync::Mutex};

pub(crate) struct ShardLock {
    shard: Mutex<Shard>,
    waiting: AtomicU32,
}

impl ShardLock {
    pub(super) fn new(shard: Shard) -> Self {
        Self { shard: Mutex::new(shard), waiting: AtomicU32::new(0) }
    }

    /// Counts waiting threads, so the holder releases soon and stays away.
    pub(super) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.try_lock().unwrap_or_else(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let shard = self.shard.lock();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            shard
        })
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Shard>> {
        self.shard.try_lock()
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Resets the count in a forked child.
    pub(super) fn forget_waiting(&self) {
        self.waiting.store(0, Ordering::SeqCst);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Yields to waiting threads: a woken thread takes longer to lock than the releasing one.
    pub(super) fn let_others_in(&self) {
        if !self.is_wanted() {
            return;
        }
        let start = clock::now();
        while self.is_wanted() {
            let waited = clock::now().since(start);
            if waited >= GIVE_WAY {
                return;
            } else if waited < GIVE_WAY_SPIN {
                hint::spin_loop();
            } else {
                thread::yield_now(); // a waiter may need this processor
            }
        }
    }
}

pub(crate) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    /// One section for all copies under the lock.
    _section: Section,
}

impl<'a> Locked<'a> {
    pub(super) fn new(shard: MutexGuard<'a, Shard>) -> Self {
        Self { shard, _section: Section::enter() }
    }
}

impl Deref for Locked<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}
