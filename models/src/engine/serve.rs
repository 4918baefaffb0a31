//! An engine: coordination words, and a shard under a lock.

use std::sync::{Arc, atomic};

use loom::sync::{Mutex, MutexGuard};

use super::{
    loop_state::LoopState,
    poller::Poller,
    schedule::spin::WaitPolicy,
    shard::Shard,
    sleep::System,
    words::{Background, Calls, Waits},
};
use crate::clock;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Automatic,
    Manual,
}

pub(super) struct TryLock<T>(Mutex<T>);

impl<T> TryLock<T> {
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

pub(super) struct Engine {
    shard: Mutex<Shard>,
    pub(super) system: System,
    pub(super) calls: Calls,
    pub(super) poller: Poller,
    pub(super) waits: Waits,
    pub(super) waiter: TryLock<WaitPolicy>,
    pub(super) background: Background,
    pub(super) event_loop: LoopState,
    pub(super) corked_until: Arc<atomic::AtomicU64>,
    pub(super) progress: Progress,
}

impl Engine {
    pub(super) fn new(shard: Shard, system: System) -> Self {
        let corked_until = shard.cork.until_shared();
        Self {
            corked_until,
            shard: Mutex::new(shard),
            system,
            calls: Calls::default(),
            poller: Poller,
            waits: Waits::default(),
            waiter: TryLock(Mutex::new(WaitPolicy::default())),
            background: Background::default(),
            event_loop: LoopState::default(),
            progress: Progress::Automatic,
        }
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        true
    }

    pub(super) fn has_background(&self) -> bool {
        self.progress == Progress::Automatic
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap()
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Shard>> {
        self.shard.try_lock().ok()
    }

    /// Loom's mutexes are fair enough.
    pub(super) fn let_others_in(&self) {}

    pub(super) fn serve(&self, shard: &mut Shard, polls: bool) -> usize {
        shard.cork.observer().record_service(clock::now());
        if shard.is_corked() {
            shard.transmit(clock::now());
        }
        let received = shard.receive();
        if received > 0 {
            self.record_wakeup();
        }
        if !(polls && received > 0 && shard.cork.change(|cork| cork.find(clock::now(), true))) {
            shard.serve_timers(clock::now());
        }
        received
    }

    /// No model has failures to explain.
    pub(super) fn explain(&self) {}

    /// Like the provider's with counters.
    pub(super) fn attend(&self) {
        let Some(mut shard) = self.try_lock() else { return };
        if shard.publication.begin(clock::now()) {
            shard.publish();
        }
    }
}
