//! An engine: the shard under its lock, and the calls of the program.

use std::{
    hint,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use roce_transport::{adapter::Adapter, event::Counters, time::Instant};

use super::{
    loop_descriptor::LoopSlot,
    loop_state::LoopState,
    poller::Poller,
    schedule::{
        spin::Waiter,
        times::{GIVE_WAY, GIVE_WAY_SPIN},
    },
    shard::Shard,
    sink::CounterSink,
};
use crate::{
    LinkCounters, clock, diagnosis::Diagnosis, link::BATCH, port::Watch, region::Section,
    sync::Mutex,
};

/// Least time between two publications of the counters.
pub(super) const PUBLISH: Duration = Duration::from_secs(1);

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
    pub(super) shard: Mutex<Shard>,
    /// Number of threads that wait for the lock.
    pub(super) waiting: AtomicU32,
    /// Readable when any of the link's descriptors is, or when a link that was full has room.
    pub(super) sockets: Arc<OwnedFd>,
    /// Ends a sleep of the background thread.
    pub(super) wake: OwnedFd,
    /// Number of the program's calls that served the adapter.
    pub(super) activity: AtomicU64,
    /// Number of its polls that found something, and did not.
    pub(super) finds: AtomicU64,
    /// The thread of the last call.
    pub(super) poller: Poller,
    /// Number of its other calls.
    pub(super) commands: AtomicU64,
    /// Number of the program's threads that wait on the sockets themselves.
    pub(super) drivers: AtomicU32,
    /// True while the background thread leaves the sockets to those until one of them wakes it.
    pub(super) leaves_sockets: AtomicBool,
    /// Number of descriptors on which threads of the program sleep.
    pub(super) sleepers: AtomicU32,
    /// Held by the thread of the program that serves while it waits.
    pub(super) waiter: Mutex<Waiter>,
    /// When one began to, in nanoseconds of the clock.
    pub(super) waited_at: AtomicU64,
    /// Number of times that the background thread has found something.
    pub(super) found: AtomicU64,
    /// True while a thread of the program may sleep on a descriptor that only the background thread
    /// makes readable.
    pub(super) handed_over: AtomicBool,
    pub(super) event_loop: LoopState,
    /// The descriptor that a program in an event loop waits for.
    pub(super) loop_slot: LoopSlot,
    /// End of the background thread's sleep in nanoseconds of the clock; 0 while it is awake or
    /// about to look.
    pub(super) sleeps_until: AtomicU64,
    /// Until when something is corked, in nanoseconds of the clock; 0: nothing is.
    pub(super) corked_until: Arc<AtomicU64>,
    /// Wakes the background thread then, if they ever do.
    pub(super) timer: Option<OwnedFd>,
    pub(super) stop: AtomicBool,
    pub(super) background: Mutex<Option<JoinHandle<()>>>,
    /// Notices changes of the interface.
    pub(super) watch: Option<Watch>,
    /// Held by the thread that follows the interface.
    pub(super) following: Mutex<()>,
    /// Held by a thread that joins or leaves a multicast group, which may wait, so that each finds
    /// what the one before has done.
    pub(super) grouping: Mutex<()>,
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

/// The shard, locked.
pub(crate) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    /// Whatever is copied under the lock is copied in one section.
    _section: Section,
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
        self.watch.as_ref().map_or(0, Watch::interface)
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
            let now = clock::now();
            if shard.publish_at().is_none_or(|due| now < due) {
                return;
            }
            (shard.counted, shard.told, shard.publication) =
                (false, false, Some(now.plus(PUBLISH)));
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
        Locked { shard: self.lock_shard(), _section: Section::enter() }
    }

    /// The lock, unless another thread has it.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        Some(Locked { shard: self.shard.try_lock()?, _section: Section::enter() })
    }

    /// The lock without a section. Whoever waits for it is counted, so that a thread that serves
    /// gives it back soon, and does not take it again at once.
    pub(super) fn lock_shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.try_lock().unwrap_or_else(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let shard = self.shard.lock();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            shard
        })
    }

    /// True if other threads wait for the lock.
    fn is_wanted(&self) -> bool {
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

    /// Serves the adapter. Returns how many messages of the link were received. `polls`: for a
    /// program that polls, whose answer acknowledgements may wait for.
    pub(super) fn serve(&self, shard: &mut Shard, polls: bool) -> usize {
        let start = clock::now();
        shard.cork.noting().note_service(start);
        if shard.is_corked() {
            shard.transmit(start); // a peer can answer while this looks for others
        }
        let received = shard.serve(start, polls, || self.is_wanted());
        if received > 0 {
            self.note_stir();
        }
        if shard.has_moved() {
            let end = match received {
                0..BATCH => shard.note_short_hold(start),
                _ => shard.note_hold(start),
            };
            shard.cork.noting().note_found(end);
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
        shard.note_hold(start);
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
        self.sockets.as_fd()
    }
}
