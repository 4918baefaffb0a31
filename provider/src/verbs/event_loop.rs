use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use roce_transport::{ids::CqId, work::CompletionQueue};
use rustix::event::epoll;

use crate::{
    engine::{Engine, LoopDescriptor},
    sync::Mutex,
};

/// Events taken without waiting after which a program counts as having an event loop.
pub(super) const USES: u32 = 64;

/// Events between checks whether a program waits; a check costs a system call.
const RARELY: u32 = 64;

/// Descriptor that is readable with an event and, during a wait in an event loop, after arrivals.
pub(super) struct ChannelLoop<Q> {
    epoll: OwnedFd,
    /// Events taken without waiting, up to [`USES`].
    uses: AtomicU32,
    /// Events taken.
    asked: AtomicU32,
    /// The program accepts wakeups without an event.
    finds_none: AtomicBool,
    /// The latest empty event was given without a seen wakeup.
    is_guessed: AtomicBool,
    queues: Mutex<Queues<Q>>,
}

struct Queues<Q> {
    known: BTreeMap<CqId, (Weak<CompletionQueue>, Weak<Q>)>,
    /// Arrivals do not wake the program: no queue is armed.
    is_muted: bool,
}

impl<Q> Queues<Q> {
    fn is_any_armed(&self) -> bool {
        let is_armed =
            |queue: &Weak<CompletionQueue>| queue.upgrade().is_some_and(|it| it.is_armed());
        self.known.values().any(|(queue, _)| is_armed(queue))
    }
}

impl<Q> ChannelLoop<Q> {
    pub(super) fn new(events: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, events, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let [finds_none, is_guessed] = [(); 2].map(|()| AtomicBool::new(false));
        let [uses, asked] = [(); 2].map(|()| AtomicU32::new(0));
        let queues = Queues { known: BTreeMap::new(), is_muted: false };
        Ok(Self { epoll, uses, asked, finds_none, is_guessed, queues: Mutex::new(queues) })
    }

    pub(super) fn record_none(&self) {
        self.finds_none.store(true, Ordering::Relaxed);
    }

    /// `never_waits`: the program does not block for events.
    pub(super) fn count_use(&self, never_waits: impl FnOnce() -> bool) {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses == USES {
            return;
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if (asked < 2 * USES || asked.is_multiple_of(RARELY)) && never_waits() {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// False on failure.
    fn listen(&self, engine: &Engine, flags: epoll::EventFlags) -> bool {
        let data = epoll::EventData::new_u64(0);
        epoll::modify(&self.epoll, engine.sockets(), data, flags).is_ok()
    }

    pub(super) fn record_armed(
        &self,
        ring: &Arc<CompletionQueue>,
        queue: &Arc<Q>,
        engine: &Engine,
    ) {
        let mut queues = self.queues.lock();
        let known = || (Arc::downgrade(ring), Arc::downgrade(queue));
        queues.known.entry(ring.id()).or_insert_with(known);
        if std::mem::take(&mut queues.is_muted) {
            self.listen(engine, epoll::EventFlags::IN);
        }
    }

    pub(super) fn forget(&self, id: CqId, engine: &Engine) {
        self.queues.lock().known.remove(&id);
        self.mute_unless_armed(engine);
    }

    pub(super) fn mute_unless_armed(&self, engine: &Engine) {
        if self.finds_none.load(Ordering::Relaxed) || !engine.is_in_loop() {
            return;
        }
        let mut queues = self.queues.lock();
        if !queues.is_muted && !queues.is_any_armed() {
            queues.is_muted = self.listen(engine, epoll::EventFlags::empty());
        }
    }

    /// True once if [`disarm_one`](Self::disarm_one) last ran without a known wakeup.
    pub(super) fn take_guess(&self) -> bool {
        self.is_guessed.swap(false, Ordering::Relaxed)
    }

    /// Disarms a queue for a program that may take a wakeup without an event as an error.
    /// `is_woken` misses some wakeups, as when another thread consumes a peer's, but hardly two in
    /// a row.
    pub(super) fn disarm_one(&self, is_woken: bool, was_guessed: bool) -> Option<Weak<Q>> {
        self.is_guessed.store(!is_woken, Ordering::Relaxed);
        if self.finds_none.load(Ordering::Relaxed) || !is_woken && was_guessed {
            return None;
        }
        let queues = self.queues.lock();
        let mut known = queues.known.values();
        let one = known.find(|(queue, _)| queue.upgrade().is_some_and(|queue| queue.disarm()));
        one.map(|(_, cq)| cq.clone())
    }
}

impl<Q: Send + Sync> LoopDescriptor for ChannelLoop<Q> {
    fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn is_awaited(&self) -> bool {
        self.uses.load(Ordering::Relaxed) == USES && self.queues.lock().is_any_armed()
    }
}
