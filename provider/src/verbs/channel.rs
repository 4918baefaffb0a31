use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::adapter::ObjectError;
use thiserror::Error;

use super::{
    completion::{ChannelInner, CqInner},
    context::Context,
    cq::CompletionQueue,
};
use crate::{clock, readiness::wait};

/// Completion channel (`ibv_comp_channel`): reports completions of armed queues by descriptor or to
/// a waiting thread.
///
/// ```
/// # use std::time::Duration;
/// # use roce_provider::transport::work::NotifyKind;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// let channel = context.create_channel()?;
/// let cq = context.create_cq(16, Some(&channel))?;
/// cq.req_notify(NotifyKind::Next);
/// // nothing was posted, so no event comes
/// assert!(channel.wait(Some(Duration::from_millis(1))).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CompletionChannel {
    pub(super) inner: Arc<ChannelInner>,
}

/// Error of waiting.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The time limit passed.
    #[error("no completion within the timeout")]
    TimedOut,
    /// The system cannot wait.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Context {
    /// Creates a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// `EMFILE` without a free descriptor.
    pub fn create_channel(&self) -> io::Result<CompletionChannel> {
        Ok(CompletionChannel { inner: Arc::new(ChannelInner::new(self)?) })
    }

    /// Creates a queue for at least `capacity` completions (`ibv_create_cq`), with events on
    /// `channel`.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`) for zero or excess capacity; [`ObjectError::TooMany`]
    /// (`ENOMEM`).
    pub fn create_cq(
        &self,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, ObjectError> {
        let channel = channel.map(|channel| channel.inner.clone());
        Ok(CompletionQueue { inner: CqInner::new(self, capacity, channel)? })
    }
}

impl CompletionChannel {
    /// Takes the next event's queue, if any (non-blocking `ibv_get_cq_event`). Events need no
    /// acknowledgement.
    #[must_use]
    pub fn poll(&self) -> Option<CompletionQueue> {
        self.inner.take().map(|inner| CompletionQueue { inner })
    }

    /// Sleeps until a queue has an event (`ibv_get_cq_event`), up to `limit`.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`] (`ETIMEDOUT`); [`ChannelError::Io`] with the system's error.
    pub fn wait(&self, limit: Option<Duration>) -> Result<CompletionQueue, ChannelError> {
        let engine = &self.inner.context.inner.engine;
        let end = limit.map(|limit| clock::now().plus(limit));
        loop {
            if let Some(cq) = self.poll() {
                return Ok(cq);
            }
            self.inner.progress();
            if let Some(cq) = self.poll() {
                return Ok(cq);
            }
            let left = end.map(|end| end.since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ChannelError::TimedOut);
            }
            let descriptor = self.inner.notifier.descriptor();
            if engine.has_background() {
                match self.inner.prepare_to_wait(left) {
                    Ok(false) => wait(&[descriptor], left)?,
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            } else {
                engine.wait_on_sockets(descriptor, left)?;
            }
        }
    }

    /// Serves briefly before the caller sleeps on the [descriptor](Self::as_fd), which it mostly
    /// avoids.
    ///
    /// True if an event exists. Does nothing beside other serving threads. If false, the thread
    /// counts as asleep until it takes an event or calls this again.
    ///
    /// # Errors
    /// `EINTR` after a signal, or if the system cannot wait.
    pub fn prepare_to_wait(&self) -> io::Result<bool> {
        self.inner.prepare_to_wait(None)
    }

    /// Counts an event that the program takes; after 64 its event loop is known. `never_waits`: it
    /// [serves](Self::serve) from an event loop instead of waiting.
    pub fn count_use(&self, never_waits: impl FnOnce() -> bool) {
        if let Some(event_loop) = &self.inner.event_loop {
            event_loop.count_use(never_waits);
        }
    }

    /// Serves an event loop that woke on the [descriptor](Self::as_fd) without an event, then
    /// [polls](Self::poll).
    ///
    /// From the first call on, packets can make the descriptor readable; call whenever it is
    /// readable without an event. If packets complete nothing, an armed queue may have an empty
    /// event, until this returns `None` once.
    #[must_use]
    pub fn serve(&self) -> Option<CompletionQueue> {
        self.inner.serve().map(|inner| CompletionQueue { inner })
    }
}

opaque_debug!(CompletionChannel, |this| descriptor: this.inner.notifier.descriptor());

impl AsFd for CompletionChannel {
    /// Readable while a queue has an event to take.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.expose();
        self.inner.descriptor()
    }
}
