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
        self.read_async_events_if(|_| true)
    }

    /// The same of the events that are `wanted`. The others do not make the descriptor readable.
    /// `wanted` is asked as each comes, under the device's lock: it calls nothing of the device.
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn read_async_events_if(
        &self,
        wanted: impl Fn(AsyncEvent) -> bool + Send + Sync + 'static,
    ) -> io::Result<AsyncEvents> {
        let queue = Arc::new(AsyncQueue::new(wanted)?);
        for engine in self.inner.shards.engines() {
            engine.lock().sink::<ObjectEvents>().add_reader(&queue);
        }
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

    /// Leaves out the events that are not [wanted](Context::read_async_events_if) any more: those
    /// of objects that the reader has given up.
    pub fn leave_out_unwanted(&self) {
        self.queue.leave_out();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use roce_transport::{adapter::PKeyTable, addr::PKey};

    use super::*;
    use crate::{Device, OpenOptions, readiness::is_readable};

    #[test]
    fn a_reader_has_what_it_wants() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let wants = Arc::new(AtomicBool::new(false));
        let asked = wants.clone();
        let wanted = move |event| {
            assert_eq!(event, AsyncEvent::PKeyChange);
            asked.load(Ordering::Relaxed)
        };
        let (some, all) =
            (context.read_async_events_if(wanted).unwrap(), context.read_async_events().unwrap());
        let mut key = 0x8001;
        let mut change = || {
            key += 1;
            context.set_pkeys(PKeyTable::new([PKey::DEFAULT, PKey(key)]).unwrap()).unwrap();
        };
        change();
        assert_eq!((all.poll(), is_readable(some.as_fd())), (Some(AsyncEvent::PKeyChange), false));
        assert_eq!(some.poll(), None);
        wants.store(true, Ordering::Relaxed);
        change();
        change();
        assert_eq!((some.poll(), is_readable(some.as_fd())), (Some(AsyncEvent::PKeyChange), true));
        some.leave_out_unwanted();
        assert!(is_readable(some.as_fd()), "it is wanted still");
        wants.store(false, Ordering::Relaxed);
        some.leave_out_unwanted();
        assert_eq!((some.poll(), is_readable(some.as_fd())), (None, false));
    }
}
