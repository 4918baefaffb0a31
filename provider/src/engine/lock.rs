//! The lock of an engine. Its holder releases it soon, because waiting threads are counted.

use std::{
    hint,
    ops::{Deref, DerefMut},
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use super::{
    schedule::times::{GIVE_WAY, GIVE_WAY_SPIN},
    shard::Shard,
};
use crate::{clock, region::Section, sync::Mutex};

/// A shard, and the number of threads that wait for it.
pub(crate) struct ShardLock {
    shard: Mutex<Shard>,
    waiting: AtomicU32,
}

impl ShardLock {
    pub(super) fn new(shard: Shard) -> Self {
        Self { shard: Mutex::new(shard), waiting: AtomicU32::new(0) }
    }

    /// The lock. Whoever waits for it is counted, so that a thread that serves gives it back soon,
    /// and does not take it again at once.
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

    /// After a fork, those threads are the parent's.
    pub(super) fn forget_waiting(&self) {
        self.waiting.store(0, Ordering::SeqCst);
    }

    /// True if other threads wait for the lock.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Leaves the lock to those that wait for it: a thread that is woken takes longer to get it
    /// than one that has just given it back.
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
                thread::yield_now(); // it may have to run on this processor
            }
        }
    }
}

/// The shard, locked.
pub(crate) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    /// Whatever is copied under the lock is copied in one section.
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
