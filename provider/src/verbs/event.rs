//! Asynchronous events.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use roce_transport::event::Event;

use super::{
    Context,
    sink::{AsyncQueue, ObjectEvents},
};

/// Something that happened to an object, outside of any completion (`ibv_async_event`).
pub type AsyncEvent = Event;

/// A reader of a device's asynchronous events besides the [`Context`]'s own: each reader sees all
/// of them. For libraries that share one open device between several users.
pub struct AsyncEvents {
    queue: Arc<AsyncQueue>,
}

impl AsyncEvents {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let queue = Arc::new(AsyncQueue::new()?);
        context.inner.engine.lock().sink::<ObjectEvents>().add_reader(&queue);
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
