//! Completion queues.

use std::{fmt, sync::Arc};

use roce_transport::{
    adapter::ObjectError,
    work::{CqId, CqModeration, NotifyKind, Wc},
};

use super::completion::CqInner;

/// A completion queue (`ibv_cq`).
#[derive(Clone)]
pub struct CompletionQueue {
    pub(super) inner: Arc<CqInner>,
}

impl CompletionQueue {
    /// Its name in asynchronous events.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.inner.ring.id()
    }

    /// How many completions it can hold. One more, and the queue and all its queue pairs fail.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.ring.capacity()
    }

    /// Takes completions, the oldest first, as many as there are and `to` holds; returns how many
    /// (`ibv_poll_cq`). If there are none, first serves the device on this thread.
    pub fn poll(&self, to: &mut [Wc]) -> usize {
        match self.inner.ring.poll(to) {
            0 => {
                self.inner.context.inner.engine.progress();
                self.inner.ring.poll(to)
            }
            count => count,
        }
    }

    /// As [`poll`](Self::poll), but hands each of up to `limit` completions to `take`.
    pub fn poll_each(&self, limit: usize, mut take: impl FnMut(Wc)) -> usize {
        if limit == 0 {
            return 0;
        }
        let Some(first) = self.poll_one() else { return 0 };
        take(first);
        let mut count = 1;
        while count < limit {
            let Some(wc) = self.inner.ring.pop() else { break };
            take(wc);
            count += 1;
        }
        count
    }

    /// Takes the oldest completion, as [`poll`](Self::poll) does.
    #[must_use]
    pub fn poll_one(&self) -> Option<Wc> {
        self.inner.ring.pop().or_else(|| {
            self.inner.context.inner.engine.progress();
            self.inner.ring.pop()
        })
    }

    /// Asks its channel for one event, at the next completion of this kind (`ibv_req_notify_cq`).
    /// Completions that are there already give none: poll once more after arming.
    pub fn req_notify(&self, kind: NotifyKind) {
        self.inner.ring.req_notify(kind);
        if self.inner.is_exposed() {
            self.inner.context.inner.engine.hand_over();
        }
    }

    /// QpUpdate how many completions it can hold (`ibv_resize_cq`). Those that it holds stay, in
    /// order, and other threads may go on polling meanwhile.
    ///
    /// # Errors
    /// [`ObjectError::Size`] for no capacity or too much, [`ObjectError::Held`] when it holds more
    /// than would fit, [`ObjectError::Overrun`] when it has overflowed (all `EINVAL`). Nothing has
    /// changed then.
    pub fn resize(&self, capacity: usize) -> Result<(), ObjectError> {
        self.inner.context.inner.engine.lock().adapter().resize_cq(self.inner.ring.id(), capacity)
    }

    /// Sets how long it waits for more completions, once it is armed, before it tells its channel
    /// (`ibv_modify_cq` with `IBV_CQ_ATTR_MODERATE`). An event that has been put off is delivered
    /// now.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`) for a period of more than 65,535 µs.
    pub fn moderate(&self, moderation: CqModeration) -> Result<(), ObjectError> {
        self.inner
            .context
            .inner
            .engine
            .command(|adapter, _| adapter.moderate_cq(self.inner.ring.id(), moderation))
    }

    /// How long it waits.
    #[must_use]
    pub fn moderation(&self) -> CqModeration {
        self.inner.ring.moderation()
    }

    /// Whether a completion was lost for want of room; such a queue is dead.
    #[must_use]
    pub fn has_overrun(&self) -> bool {
        self.inner.ring.has_overrun()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("id", &self.id())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
