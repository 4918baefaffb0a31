//! An engine: coordination words, and a shard under a lock.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    lock::{Locked, ShardLock},
    loop_state::LoopState,
    machine::{self, spend},
    poller::Poller,
    schedule::spin::WaitPolicy,
    shard::{BATCH, Shard},
    sleep::System,
    sync::Mutex,
    verbs::Queue,
    words::{Background, Calls, Waits},
};
use crate::clock;

/// Time that a publication of counters takes.
const PUBLISHING: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Automatic,
    Manual,
}

pub(super) struct Engine {
    shard: ShardLock,
    pub(super) queues: Arc<Vec<Arc<Queue>>>,
    pub(super) system: Arc<System>,
    pub(super) calls: Calls,
    pub(super) poller: Poller,
    pub(super) waits: Waits,
    pub(super) waiter: Mutex<WaitPolicy>,
    pub(super) background: Background,
    pub(super) event_loop: LoopState,
    pub(super) corked_until: Arc<AtomicU64>,
    pub(super) progress: Progress,
    /// Turns of the background thread beside a program that polls its memory.
    pub(super) assists: AtomicU64,
}

impl Engine {
    pub(super) fn new(
        system: &Arc<System>,
        queues: &Arc<Vec<Arc<Queue>>>,
        shard: impl FnOnce(&Weak<Self>) -> Shard,
    ) -> Arc<Self> {
        Arc::new_cyclic(|engine| {
            let shard = shard(engine);
            let corked_until = shard.cork.until_shared();
            Self {
                shard: ShardLock::new(shard),
                queues: queues.clone(),
                system: system.clone(),
                calls: Calls::default(),
                poller: Poller::default(),
                waits: Waits::default(),
                waiter: Mutex::default(),
                background: Background::default(),
                event_loop: LoopState::default(),
                corked_until,
                progress: Progress::Automatic,
                assists: AtomicU64::new(0),
            }
        })
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        true
    }

    pub(super) fn has_background(&self) -> bool {
        self.progress == Progress::Automatic
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked::new(self.shard.lock())
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        self.shard.try_lock().map(Locked::new)
    }

    pub(super) fn let_others_in(&self) {
        self.shard.let_others_in();
    }

    /// As the provider's, with a count of assistance.
    pub(super) fn serve(&self, shard: &mut Shard, polls: bool) -> usize {
        if polls && machine::is_background() {
            self.assists.fetch_add(1, Ordering::Relaxed);
        }
        let start = clock::now();
        shard.cork.observer().record_service(start);
        if shard.is_corked() {
            shard.transmit(start);
        }
        let received = shard.serve(start, polls, || self.shard.is_wanted());
        if received > 0 {
            self.record_wakeup();
        }
        if shard.has_moved() {
            let end = match received {
                0..BATCH => shard.count_short_hold(start),
                _ => shard.count_hold(start),
            };
            shard.cork.observer().record_found(end);
        }
        received
    }

    /// Nothing fails.
    pub(super) fn explain(&self) {}

    /// Publishes counters.
    pub(super) fn attend(&self) {
        let begins = self.try_lock().is_some_and(|mut shard| {
            let now = clock::now();
            shard.publication.begin(now)
        });
        if begins {
            spend(|_| PUBLISHING.as_nanos() as u64);
        }
    }
}
