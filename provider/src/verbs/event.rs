//! Asynchronous events.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use roce_transport::event::Event;

use super::{
    context::Context,
    sink::{AsyncQueue, ObjectEvents},
};

/// Asynchronous event (`ibv_async_event`): what happened to an object outside of any completion.
pub type AsyncEvent = Event;

/// Reader of a device's asynchronous events besides the [`Context`] itself. Each reader gets all
/// events, for libraries that share one open device between several users.
///
/// ```
/// # use roce_provider::transport::adapter::PKeyTable;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// let events = context.read_async_events()?;
/// context.set_pkeys(PKeyTable::default())?; // an event only if the table changes
/// while let Some(event) = events.poll() {
///     println!("{event:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncEvents {
    queue: Arc<AsyncQueue>,
}

impl Context {
    /// Takes the next asynchronous event, if there is one (`ibv_get_async_event` on a non-blocking
    /// descriptor).
    #[must_use]
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.inner.events.pop()
    }

    /// Makes a further reader of the asynchronous events, from now on.
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn read_async_events(&self) -> io::Result<AsyncEvents> {
        let queue = Arc::new(AsyncQueue::new()?);
        self.inner.engine.lock().sink::<ObjectEvents>().add_reader(&queue);
        Ok(AsyncEvents { queue })
    }

    /// Descriptor that is readable while there are asynchronous events.
    #[must_use]
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.descriptor()
    }
}

impl AsFd for Context {
    /// The same as [`async_fd`](Context::async_fd).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }
}

impl AsyncEvents {
    /// Takes the next event, if there is one.
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
