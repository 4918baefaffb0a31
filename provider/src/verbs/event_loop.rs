//! Channels that a program waits for in an event loop.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::epoll;

use super::completion::CqInner;
use crate::{engine::LoopDescriptor, sync::Mutex};

/// A descriptor that is readable when a channel has an event and, while the program waits for it in its
/// event loop, when something has arrived.
pub(super) struct ChannelLoop {
    epoll: OwnedFd,
    /// The program takes events without waiting.
    is_used: AtomicBool,
    /// It has found none, and went on: to be woken without an event is no error for it.
    finds_none: AtomicBool,
    /// The queue of the channel that was armed last.
    armed: Mutex<Weak<CqInner>>,
}

impl ChannelLoop {
    /// `events` is readable when the channel has some.
    pub(super) fn new(events: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, events, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let [is_used, finds_none] = [(); 2].map(|()| AtomicBool::new(false));
        Ok(Self { epoll, is_used, finds_none, armed: Mutex::default() })
    }

    /// True if the program may take it for an error when it is woken and there is no event.
    pub(super) fn needs_event(&self) -> bool {
        !self.finds_none.load(Ordering::Relaxed)
    }

    /// The program finds no event.
    pub(super) fn note_none(&self) {
        self.finds_none.store(true, Ordering::Relaxed);
    }

    /// The program takes an event, and perhaps `never_waits` for one.
    pub(super) fn note_use(&self, never_waits: impl FnOnce() -> bool) {
        if !self.is_used.load(Ordering::Relaxed) && never_waits() {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// A queue of the channel was armed.
    pub(super) fn note_armed(&self, cq: &Arc<CqInner>) {
        let mut armed = self.armed.lock();
        if !std::ptr::eq(armed.as_ptr(), Arc::as_ptr(cq)) {
            *armed = Arc::downgrade(cq);
        }
    }

    /// The queue that was armed last, if it is armed still.
    pub(super) fn armed(&self) -> Option<Arc<CqInner>> {
        self.armed.lock().upgrade().filter(|cq| cq.ring.is_armed())
    }
}

impl LoopDescriptor for ChannelLoop {
    fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn is_awaited(&self) -> bool {
        self.is_used.load(Ordering::Relaxed) && self.armed().is_some()
    }
}
