use std::{
    ops::{Deref, DerefMut},
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{
    processor::{hint, thread},
    schedule::times::{GIVE_WAY, GIVE_WAY_SPIN, LOCK_SPIN},
    shard::Shard,
};
use crate::{clock, region::Section, sync::Mutex};

pub(crate) struct ShardLock {
    shard: Mutex<Shard>,
    /// Held by the one thread that sleeps for the shard. Others sleep for this.
    turn: Mutex<()>,
    /// Threads that spin, and the one whose turn it is.
    waiting: AtomicU32,
}

impl ShardLock {
    pub(super) fn new(shard: Shard) -> Self {
        Self { shard: Mutex::new(shard), turn: Mutex::new(()), waiting: AtomicU32::new(0) }
    }

    /// Spins first: most holds are shorter than a wakeup.
    pub(super) fn lock(&self) -> MutexGuard<'_, Shard> {
        let spun = || self.count_waiting(|| self.spin());
        self.shard.try_lock().or_else(spun).unwrap_or_else(|| self.lock_in_turn().0)
    }

    /// Sleeps. A forking thread keeps both guards: its child has no thread to release the turn.
    pub(super) fn lock_in_turn(&self) -> (MutexGuard<'_, Shard>, MutexGuard<'_, ()>) {
        let turn = self.turn.lock();
        (self.count_waiting(|| self.shard.lock()), turn)
    }

    fn spin(&self) -> Option<MutexGuard<'_, Shard>> {
        let start = clock::now();
        while clock::now().since(start) < LOCK_SPIN {
            hint::spin_loop();
            if let Some(shard) = self.shard.try_lock() {
                return Some(shard);
            }
        }
        None
    }

    /// Counts the thread as waiting, so the holder releases soon and stays away.
    fn count_waiting<R>(&self, lock: impl FnOnce() -> R) -> R {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let result = lock();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Shard>> {
        self.shard.try_lock()
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
