//! The descriptor that a program waits for [in its event loop](super::event_loop).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Weak},
};

use rustix::event::epoll;

use super::serve::Engine;
use crate::sync::Mutex;

/// A descriptor of `epoll` that a program may wait for in an event loop.
pub(crate) trait LoopDescriptor: Send + Sync {
    fn epoll(&self) -> BorrowedFd<'_>;

    /// True if the program waits for it, or is about to.
    fn is_awaited(&self) -> bool;
}

/// The one of a device, if there is one.
#[derive(Default)]
pub(super) struct LoopSlot(Mutex<Option<Weak<dyn LoopDescriptor>>>);

impl LoopSlot {
    fn get(&self) -> Option<Arc<dyn LoopDescriptor>> {
        self.0.lock().as_ref()?.upgrade()
    }
}

impl Engine {
    /// Makes the descriptor of the device, unless it has one: one is enough to wake the program for all
    /// its channels.
    pub(crate) fn make_loop_descriptor<T: LoopDescriptor + 'static>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<Arc<T>>> {
        let mut slot = self.loop_slot.0.lock();
        let is_taken = slot.as_ref().is_some_and(|it| it.strong_count() > 0);
        if is_taken || !self.has_background() {
            return Ok(None);
        }
        let made = Arc::new(make()?);
        let weak: Weak<T> = Arc::downgrade(&made);
        *slot = Some(weak);
        Ok(Some(made))
    }

    /// Has it be readable when the sockets are. False if the program does not wait for it.
    pub(super) fn join_loop(&self) -> bool {
        let Some(descriptor) = self.loop_slot.get().filter(|it| it.is_awaited()) else {
            return false;
        };
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(descriptor.epoll(), self.sockets.as_fd(), data, flags).is_ok()
    }

    /// Ends that.
    pub(super) fn part_loop(&self) {
        if let Some(descriptor) = self.loop_slot.get() {
            let _ = epoll::delete(descriptor.epoll(), self.sockets.as_fd());
        }
    }
}
