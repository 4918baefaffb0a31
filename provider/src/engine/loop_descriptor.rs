use std::{
    io,
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
};

use rustix::event::epoll;

use crate::sync::Mutex;

pub(crate) trait LoopDescriptor: Send + Sync {
    fn epoll(&self) -> BorrowedFd<'_>;

    /// True if the program waits for it, or soon will.
    fn is_awaited(&self) -> bool;
}

#[derive(Default)]
pub(super) struct LoopSlot(Mutex<Option<Weak<dyn LoopDescriptor>>>);

impl LoopSlot {
    /// `None` if the device has a descriptor.
    pub(super) fn fill<T: LoopDescriptor + 'static>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<Arc<T>>> {
        let mut slot = self.0.lock();
        if slot.as_ref().is_some_and(|it| it.strong_count() > 0) {
            return Ok(None);
        }
        let made = Arc::new(make()?);
        let weak: Weak<T> = Arc::downgrade(&made);
        *slot = Some(weak);
        Ok(Some(made))
    }

    fn get(&self) -> Option<Arc<dyn LoopDescriptor>> {
        self.0.lock().as_ref()?.upgrade()
    }

    /// Adds the sockets to the descriptor; false if the program does not wait for it.
    pub(super) fn join(&self, sockets: BorrowedFd<'_>) -> bool {
        let Some(descriptor) = self.get().filter(|it| it.is_awaited()) else { return false };
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(descriptor.epoll(), sockets, data, flags).is_ok()
    }

    pub(super) fn detach(&self, sockets: BorrowedFd<'_>) {
        if let Some(descriptor) = self.get() {
            let _ = epoll::delete(descriptor.epoll(), sockets);
        }
    }
}
