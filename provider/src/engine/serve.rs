//! An engine: the shard under its lock, and the calls of the program.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, MutexGuard, atomic::AtomicU64},
};

use roce_transport::{adapter::Adapter, event::Counters, time::Instant};

use super::{
    interface::Interface,
    lock::{Locked, ShardLock},
    loop_state::LoopState,
    poller::Poller,
    schedule::spin::Waiter,
    shard::Shard,
    sink::CounterSink,
    system::System,
    words::{Background, Calls, Waits},
};
use crate::{LinkCounters, clock, diagnosis::Diagnosis, link::BATCH, port::Watch, sync::Mutex};

/// Mover of a device's packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Progress {
    /// The program's own calls, and a background thread when there are none.
    #[default]
    Automatic,
    /// Only [`Context::progress`](crate::Context::progress), and the calls that post and poll. For
    /// programs with an event loop of their own, and for tests.
    Manual,
}

/// See the [module's documentation](super).
pub(crate) struct Engine {
    pub(super) shard: ShardLock,
    /// Descriptors that threads sleep on.
    pub(super) system: System,
    pub(super) calls: Calls,
    /// The thread of the last call.
    pub(super) poller: Poller,
    pub(super) waits: Waits,
    /// Held by the thread of the program that serves while it waits.
    pub(super) waiter: Mutex<Waiter>,
    pub(super) background: Background,
    pub(super) event_loop: LoopState,
    /// Until when something is corked, in nanoseconds of the clock; 0: nothing is.
    pub(super) corked_until: Arc<AtomicU64>,
    pub(super) interface: Interface,
    /// Receivers of the counters.
    pub(super) publishers: Mutex<Vec<Box<dyn CounterSink>>>,
    /// Explanations of failures, if there are to be any.
    pub(crate) diagnosis: Option<Diagnosis>,
    pub(super) progress: Progress,
    /// Process that the engine works in; the copy in a child does nothing.
    pub(super) process: u32,
}

/// What is published.
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

    fn tell(&self, publishers: &mut [Box<dyn CounterSink>]) {
        for publisher in publishers {
            publisher.publish(&self.counters, &self.link, &self.gids);
        }
    }
}

impl Engine {
    /// True if the engine works: after a fork, the child has only a copy that does nothing.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// True if a thread of its own serves what the program does not.
    pub(crate) fn has_background(&self) -> bool {
        self.progress == Progress::Automatic
    }

    /// Index of the network interface that the device uses; 0: none.
    pub(crate) fn interface(&self) -> u32 {
        self.interface.watch.as_ref().map_or(0, Watch::interface)
    }

    /// Does what has time: follows the interface, publishes the counters.
    pub(super) fn attend(&self) {
        self.follow_news();
        let mut publishers = self.publishers.lock();
        if publishers.is_empty() {
            return;
        }
        let report = {
            // a thread that is busy with the adapter is not to wait for this
            let Some(mut shard) = self.shard.try_lock() else { return };
            if !shard.publication.begin(clock::now()) {
                return;
            }
            Report::of(&mut shard)
        };
        report.tell(&mut publishers);
    }

    /// Publishes the counters as they are now: the device is about to be closed, or the process to
    /// end.
    pub(super) fn publish(&self) {
        let mut publishers = self.publishers.lock();
        if !publishers.is_empty() {
            let report = Report::of(&mut self.lock_shard());
            report.tell(&mut publishers);
        }
    }

    /// The lock.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked::new(self.shard.lock())
    }

    /// The lock, unless another thread has it.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        self.shard.try_lock().map(Locked::new)
    }

    /// The lock without a section.
    pub(super) fn lock_shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock()
    }

    /// See [`ShardLock::let_others_in`].
    pub(super) fn let_others_in(&self) {
        self.shard.let_others_in();
    }

    /// Serves the adapter. Returns how many messages of the link were received. `polls`: for a
    /// program that polls, whose answer acknowledgements may wait for.
    pub(super) fn serve(&self, shard: &mut Shard, polls: bool) -> usize {
        let start = clock::now();
        shard.cork.noting().record_service(start);
        if shard.is_corked() {
            shard.transmit(start); // a peer can answer while this looks for others
        }
        let received = shard.serve(start, polls, || self.shard.is_wanted());
        if received > 0 {
            self.record_stir();
        }
        if shard.has_moved() {
            let end = match received {
                0..BATCH => shard.count_short_hold(start),
                _ => shard.count_hold(start),
            };
            shard.cork.noting().record_found(end);
        }
        received
    }

    /// Runs a command of the program and sends what follows from it.
    pub(crate) fn command<R>(&self, command: impl FnOnce(&mut Adapter, Instant) -> R) -> R {
        self.command_shard(|shard, now| command(shard.adapter(), now))
    }

    /// Makes, changes or destroys something for the program, which leads to no packet.
    pub(crate) fn alter<R>(&self, change: impl FnOnce(&mut Adapter) -> R) -> R {
        let mut shard = self.lock();
        let start = clock::now();
        if shard.is_corked() {
            shard.transmit(start); // what was posted before
        }
        let result = change(shard.adapter());
        shard.count_hold(start);
        result
    }

    /// Explains what has failed. Called without the lock: what it writes to may be slow.
    #[inline]
    pub(crate) fn explain(&self) {
        if let Some(diagnosis) = &self.diagnosis {
            diagnosis.tell(|| self.shard.try_lock()?.link_counters().last_send_error);
        }
    }

    /// Time at which the adapter is to be served although nothing has arrived.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().deadline()
    }

    /// Descriptor that is readable when something has arrived.
    pub(crate) fn sockets(&self) -> BorrowedFd<'_> {
        self.system.sockets.as_fd()
    }
}
