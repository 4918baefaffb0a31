//! Asynchronous events, and a queue with a descriptor for them.

use std::{
    collections::VecDeque,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use roce_transport::event::Event;
use rustix::event::{EventfdFlags, eventfd};

use super::Context;

/// Something that happened to an object, outside of any completion (`ibv_async_event`).
pub type AsyncEvent = Event;

/// Events that no one takes are kept up to this many; then the oldest go.
const MAX_EVENTS: usize = 4096;

/// Values with a descriptor that is readable while there are some.
pub(crate) struct Notifier<T> {
    queue: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
}

/// The asynchronous events of a context.
pub(crate) type AsyncQueue = Notifier<Event>;

/// A reader of a device's asynchronous events besides the [`Context`]'s own: each reader sees all
/// of them. For libraries that share one open device between several users.
pub struct AsyncEvents {
    queue: Arc<AsyncQueue>,
}

impl AsyncEvents {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let queue = Arc::new(AsyncQueue::new()?);
        let readers = &mut context.inner.engine.lock().wakers.readers;
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&queue));
        Ok(Self { queue })
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<AsyncEvent> {
        self.queue.pop()
    }
}

impl fmt::Debug for AsyncEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents")
            .field("descriptor", &self.queue.descriptor())
            .finish_non_exhaustive()
    }
}

impl AsFd for AsyncEvents {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }
}

impl<T> Notifier<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?;
        Ok(Self { queue: Mutex::default(), descriptor })
    }

    pub(crate) fn push(&self, value: T) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() == MAX_EVENTS {
            queue.pop_front();
        } else {
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()); // counts to 2^64
        }
        queue.push_back(value);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let value = queue.pop_front()?;
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]); // one for each value
        Some(value)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
