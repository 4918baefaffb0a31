use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, atomic::AtomicU64},
};

use roce_transport::{adapter::Adapter, event::Counters, time::Instant};

use super::{
    interface::Interface,
    lock::{Locked, ShardLock},
    loop_state::LoopState,
    poller::Poller,
    schedule::spin::WaitPolicy,
    shard::Shard,
    sink::CounterSink,
    system::System,
    words::{Background, Calls, Waits},
};
use crate::{LinkCounters, clock, diagnosis::Diagnosis, link::BATCH, sync::Mutex};

/// Mover of a device's packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Progress {
    /// The program's calls, else a background thread.
    #[default]
    Automatic,
    /// [`Context::progress`](crate::Context::progress), posts and polls only; for event loops and
    /// tests.
    Manual,
}

pub(crate) struct Engine {
    pub(super) shard: ShardLock,
    pub(super) system: System,
    pub(super) calls: Calls,
    pub(super) poller: Poller,
    pub(super) waits: Waits,
    /// Held by a program thread that serves while it waits.
    pub(super) waiter: Mutex<WaitPolicy>,
    pub(super) background: Background,
    pub(super) event_loop: LoopState,
    pub(super) corked_until: Arc<AtomicU64>,
    pub(super) interface: Interface,
    pub(super) publishers: Mutex<Vec<Box<dyn CounterSink>>>,
    pub(crate) diagnosis: Option<Diagnosis>,
    pub(super) progress: Progress,
    /// A forked child's copy does nothing.
    pub(super) process: u32,
}

struct Report {
    counters: Counters,
    link: LinkCounters,
    gids: Vec<String>,
}

impl Report {
    fn of(shard: &mut Shard) -> Self {
        let gids = shard.adapter().gids().entries().iter().map(ToString::to_string).collect();
        Self { counters: shard.adapter().counters().clone(), link: shard.link_counters(), gids }
    }

    fn publish(&self, publishers: &mut [Box<dyn CounterSink>]) {
        for publisher in publishers {
            publisher.publish(&self.counters, &self.link, &self.gids);
        }
    }
}

impl Engine {
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    pub(crate) fn has_background(&self) -> bool {
        self.progress == Progress::Automatic
    }

    /// Index of the network interface; 0: none.
    pub(crate) fn interface(&self) -> u32 {
        self.interface.watch.as_ref().map_or(0, |watch| watch.interface)
    }

    /// Follows the interface, publishes counters.
    pub(super) fn attend(&self) {
        self.follow_news();
        let mut publishers = self.publishers.lock();
        if publishers.is_empty() {
            return;
        }
        let report = {
            // threads busy with the adapter must not wait for this
            let Some(mut shard) = self.shard.try_lock() else { return };
            if !shard.publication.begin(clock::now()) {
                return;
            }
            Report::of(&mut shard)
        };
        report.publish(&mut publishers);
    }

    /// Publishes the final counters, before close or exit.
    pub(super) fn publish(&self) {
        let mut publishers = self.publishers.lock();
        if !publishers.is_empty() {
            let report = Report::of(&mut self.shard.lock());
            report.publish(&mut publishers);
        }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked::new(self.shard.lock())
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        self.shard.try_lock().map(Locked::new)
    }

    pub(super) fn let_others_in(&self) {
        self.shard.let_others_in();
    }

    /// Returns the number of messages received. `polls`: acknowledgements may wait for the
    /// program's reply.
    pub(super) fn serve(&self, shard: &mut Shard, polls: bool) -> usize {
        let start = clock::now();
        shard.cork.observer().record_service(start);
        if shard.is_corked() {
            shard.transmit(start); // the peer responds while this thread receives
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

    /// Runs a command and sends its packets.
    pub(crate) fn command<R>(&self, command: impl FnOnce(&mut Adapter, Instant) -> R) -> R {
        self.command_shard(|shard, now| command(shard.adapter(), now))
    }

    /// Runs a change that causes no packets.
    pub(crate) fn alter<R>(&self, change: impl FnOnce(&mut Adapter) -> R) -> R {
        let mut shard = self.lock();
        let start = clock::now();
        if shard.is_corked() {
            shard.transmit(start); // earlier posts
        }
        let result = change(shard.adapter());
        shard.count_hold(start);
        result
    }

    /// Call without the lock: output may be slow.
    #[inline]
    pub(crate) fn explain(&self) {
        if let Some(diagnosis) = &self.diagnosis {
            diagnosis.report(|| self.last_send_error());
        }
    }

    pub(super) fn last_send_error(&self) -> Option<String> {
        self.shard.try_lock()?.link_counters().last_send_error
    }

    /// Time of the next service without arrivals.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().deadline()
    }

    /// Readable after arrivals.
    pub(crate) fn sockets(&self) -> BorrowedFd<'_> {
        self.system.sockets.as_fd()
    }
}
