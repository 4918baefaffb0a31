use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use roce_transport::event::Event;

use super::{
    context::Context,
    sink::{AsyncQueue, ObjectEvents},
};

/// Asynchronous event (`ibv_async_event`).
pub type AsyncEvent = Event;

/// Further reader of a device's asynchronous events; each reader gets all.
///
/// ```
/// # use roce_provider::transport::adapter::PKeyTable;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// let events = context.read_async_events(|_| true)?;
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
    /// Takes the next asynchronous event, if any (non-blocking `ibv_get_async_event`).
    #[must_use]
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.inner.events.unread.pop()
    }

    /// Creates a further reader, of future `wanted` events. `wanted` runs under the device's lock
    /// and must not call the device.
    ///
    /// # Errors
    /// `EMFILE` without a free descriptor.
    pub fn read_async_events(
        &self,
        wanted: impl Fn(AsyncEvent) -> bool + Send + Sync + 'static,
    ) -> io::Result<AsyncEvents> {
        let queue = Arc::new(AsyncQueue::new(wanted)?);
        for engine in self.inner.shards.engines() {
            engine.lock().sink::<ObjectEvents>().add_reader(&queue);
        }
        Ok(AsyncEvents { queue })
    }
}

impl AsFd for Context {
    /// Readable while events exist (`async_fd`).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.unread.descriptor()
    }
}

impl AsyncEvents {
    /// Takes the next event, if any.
    #[must_use]
    pub fn poll(&self) -> Option<AsyncEvent> {
        self.queue.unread.pop()
    }

    /// Drops events that are no longer [wanted](Context::read_async_events).
    pub fn leave_out_unwanted(&self) {
        self.queue.unread.retain(|event| (self.queue.wanted)(*event));
    }
}

opaque_debug!(AsyncEvents, |this| descriptor: this.as_fd());

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.unread.descriptor()
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
        let some = context.read_async_events(wanted).unwrap();
        let all = context.read_async_events(|_| true).unwrap();
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
