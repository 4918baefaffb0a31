//! Channels that a program waits for in an event loop.

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

/// Number of events after which a program that takes them without waiting is taken to have an event
/// loop.
pub(super) const USES: u32 = 64;

/// Of so many events of a program that waits for them, one is looked at: that costs a call of the
/// system.
const RARELY: u32 = 64;

/// A descriptor that is readable when a channel has an event and, while the program waits for it in
/// its event loop, when something has arrived.
pub(super) struct ChannelLoop<Q> {
    epoll: OwnedFd,
    /// Number of times that the program has taken an event without waiting, up to [`USES`].
    uses: AtomicU32,
    /// Number of events after which it was asked whether it waits.
    asked: AtomicU32,
    /// It has found none, and went on: to be woken without an event is no error for it.
    finds_none: AtomicBool,
    /// The last event without a completion was given though it was not seen why the program was
    /// woken.
    is_guessed: AtomicBool,
    queues: Mutex<Queues<Q>>,
}

/// The queues of a channel that have been armed.
struct Queues<Q> {
    known: BTreeMap<CqId, (Weak<CompletionQueue>, Weak<Q>)>,
    /// What arrives does not wake the program, for no queue waits for an event.
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
    /// `events` is readable when the channel has some.
    pub(super) fn new(events: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, events, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let [finds_none, is_guessed] = [(); 2].map(|()| AtomicBool::new(false));
        let [uses, asked] = [(); 2].map(|()| AtomicU32::new(0));
        let queues = Queues { known: BTreeMap::new(), is_muted: false };
        Ok(Self { epoll, uses, asked, finds_none, is_guessed, queues: Mutex::new(queues) })
    }

    /// The program finds no event.
    pub(super) fn record_none(&self) {
        self.finds_none.store(true, Ordering::Relaxed);
    }

    /// The program takes an event, and perhaps `never_waits` for one.
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

    /// Has what arrives wake the program, or not. False if it does not wait for that.
    fn listen(&self, engine: &Engine, flags: epoll::EventFlags) -> bool {
        let data = epoll::EventData::new_u64(0);
        epoll::modify(&self.epoll, engine.sockets(), data, flags).is_ok()
    }

    /// A queue of the channel was armed.
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

    /// A queue of the channel is gone.
    pub(super) fn forget(&self, id: CqId, engine: &Engine) {
        self.queues.lock().known.remove(&id);
        self.mute_unless_armed(engine);
    }

    /// Lets the program sleep if it could get no event for what arrives.
    pub(super) fn mute_unless_armed(&self, engine: &Engine) {
        if self.finds_none.load(Ordering::Relaxed) || !engine.is_in_loop() {
            return;
        }
        let mut queues = self.queues.lock();
        if !queues.is_muted && !queues.is_any_armed() {
            queues.is_muted = self.listen(engine, epoll::EventFlags::empty());
        }
    }

    /// A queue that was armed, which now is not, for a program that may take it for an error when
    /// it is woken and there is no event. That it `is_woken` is not always seen, as when another
    /// thread takes notice of a peer's wakeup; but it is hardly ever twice in a row.
    pub(super) fn disarm_one(&self, is_woken: bool) -> Option<Weak<Q>> {
        let was_guessed = self.is_guessed.swap(!is_woken, Ordering::Relaxed);
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
