//! Completion channels.

use std::{
    fmt, io,
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

/// Completion channel (`ibv_comp_channel`): reports completions in queues that were armed, by its
/// descriptor or to a thread that waits.
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

/// Error of waiting for an event.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The time has passed.
    #[error("no completion in the given time")]
    TimedOut,
    /// The system cannot wait.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Context {
    /// Makes a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn create_channel(&self) -> io::Result<CompletionChannel> {
        Ok(CompletionChannel { inner: Arc::new(ChannelInner::new(self)?) })
    }

    /// Makes a completion queue for at least `capacity` completions (`ibv_create_cq`), with its
    /// events on `channel`.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`) for no capacity or too much; [`ObjectError::TooMany`]
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
    /// Takes the next event: its queue, if there is one (`ibv_get_cq_event` on a non-blocking
    /// descriptor). Events need no acknowledgement.
    #[must_use]
    pub fn poll(&self) -> Option<CompletionQueue> {
        let inner = self.inner.take()?;
        self.inner.has_slept();
        self.inner.has_taken();
        Some(CompletionQueue { inner })
    }

    /// Sleeps until a queue has an event (`ibv_get_cq_event`), at most for `limit`.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`] (`ETIMEDOUT`); [`ChannelError::Io`] when the system cannot wait
    /// (the system's error).
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
                engine.drive(descriptor, left)?;
            }
        }
    }

    /// Serves the device on this thread until a queue has an event, but not for long, and not
    /// beside others that do; for a thread that is about to sleep until the
    /// [descriptor](Self::as_fd) is readable, which this spares it mostly. Returns true if there is
    /// an event. If not, the thread counts as asleep until an event is taken, or until the next
    /// call of this.
    ///
    /// # Errors
    /// `EINTR` when a signal has come meanwhile, and when the system cannot wait.
    pub fn prepare_to_wait(&self) -> io::Result<bool> {
        self.inner.prepare_to_wait(None)
    }

    /// Tells that the program takes an event, and perhaps `never_waits` for one, but sleeps in an
    /// event loop and [serves](Self::serve) then. To be called with each event: after 64 it is
    /// known that it has a loop.
    pub fn count_use(&self, never_waits: impl FnOnce() -> bool) {
        self.inner.count_use(never_waits);
    }

    /// Serves the device, for a program that sleeps in an event loop until the
    /// [descriptor](Self::as_fd) is readable, and has found no event then. Returns true if there is
    /// one now.
    ///
    /// From then on that descriptor may be readable when packets have arrived, so no second thread
    /// needs to wake the program. So call this whenever the descriptor was readable and there is no
    /// event. If what has arrived completes nothing, a queue that is armed has an event without a
    /// completion, until this has once returned false.
    #[must_use]
    pub fn serve(&self) -> bool {
        self.inner.serve()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("descriptor", &self.inner.notifier.descriptor())
            .finish_non_exhaustive()
    }
}

impl AsFd for CompletionChannel {
    /// Readable while a queue has an event to take.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.expose();
        self.inner.descriptor()
    }
}
