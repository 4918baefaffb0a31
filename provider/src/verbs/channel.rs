//! Completion channels.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use thiserror::Error;

use super::{
    Context,
    cq::{CompletionQueue, CqInner},
};
use crate::{clock, notify::Notifier};

/// Tells of completions in queues that were armed (`ibv_comp_channel`), by its descriptor or to a
/// thread that waits.
#[derive(Clone)]
pub struct CompletionChannel {
    pub(super) inner: Arc<ChannelInner>,
}

pub(crate) struct ChannelInner {
    context: Context,
    notifier: Notifier<Weak<CqInner>>,
    /// The program has taken the descriptor and sleeps on it in its own ways.
    exposed: AtomicBool,
}

/// What the engine holds of a completion queue: how to tell its channel.
pub(crate) struct CqWaker {
    pub(super) cq: Weak<CqInner>,
    pub(super) channel: Arc<ChannelInner>,
}

impl CqWaker {
    pub(crate) fn wake(&self) {
        self.channel.notifier.push(self.cq.clone());
    }
}

/// Why no event came.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// The time was over.
    #[error("no completion in the given time")]
    TimedOut,
    /// The system cannot wait.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ChannelInner {
    pub(super) fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }
}

impl CompletionChannel {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let inner = ChannelInner {
            context: context.clone(),
            notifier: Notifier::new()?,
            exposed: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The queue whose event is next, if there is one (`ibv_get_cq_event` on a non-blocking
    /// descriptor). Events need no acknowledgement.
    #[must_use]
    pub fn poll(&self) -> Option<CompletionQueue> {
        loop {
            // an event of a queue that is gone is no event
            if let Some(inner) = self.inner.notifier.pop()?.upgrade() {
                return Some(CompletionQueue { inner });
            }
        }
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
            engine.progress();
            if let Some(cq) = self.poll() {
                return Ok(cq);
            }
            let left = end.map(|end| end.since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ChannelError::TimedOut);
            }
            engine.drive(self.inner.notifier.descriptor(), left)?;
        }
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
        if !self.inner.exposed.swap(true, Ordering::Relaxed) {
            self.inner.context.inner.engine.hand_over();
        }
        self.inner.notifier.descriptor()
    }
}
