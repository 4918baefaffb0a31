//! Completion queues.

use std::{fmt, sync::Arc};

use roce_transport::{
    adapter::ObjectError,
    work::{CqId, CqModeration, NotifyKind, Wc},
};

use super::{completion::CqInner, shards::HomeShard};
use crate::engine::Engine;

/// Completion queue (`ibv_cq`).
///
/// ```
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// let cq = context.create_cq(16, None)?;
/// let mut completions = Vec::new();
/// cq.poll_each(16, |completion| completions.push(completion));
/// assert!(completions.is_empty()); // nothing was posted
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    pub(super) inner: Arc<CqInner>,
}

impl CompletionQueue {
    /// Identifier of the queue in asynchronous events.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.inner.ring.id()
    }

    /// Number of completions that the queue can hold. With one more the queue and all its queue
    /// pairs fail.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.ring.capacity()
    }

    /// Takes completions, the oldest first, as many as there are and `to` holds; returns their
    /// number (`ibv_poll_cq`). If there are none, serves the device on this thread first.
    pub fn poll(&self, to: &mut [Wc]) -> usize {
        match self.inner.ring.poll(to) {
            0 => {
                self.inner.serve_empty();
                self.inner.ring.poll(to)
            }
            count => {
                self.inner.engine().count_find();
                count
            }
        }
    }

    /// Takes up to `limit` completions as [`poll`](Self::poll) does, and passes each to `take`.
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
        match self.inner.ring.pop() {
            None => {
                self.inner.serve_empty();
                self.inner.ring.pop()
            }
            found => {
                self.inner.engine().count_find();
                found
            }
        }
    }

    /// Requests one event on the channel, at the next completion of this kind
    /// (`ibv_req_notify_cq`). Completions that are there already cause none: poll once more after
    /// arming.
    pub fn req_notify(&self, kind: NotifyKind) {
        self.inner.ring.req_notify(kind);
        self.inner.is_armed();
    }

    /// The same as network adapters do it, for programs that do not poll again. A completion that
    /// came before this call, and after a poll that found too few, causes the event at once. For
    /// the C interface.
    #[doc(hidden)]
    pub fn req_notify_unpolled(&self, kind: NotifyKind) {
        if self.inner.ring.req_notify_unpolled(kind) {
            self.inner.wake();
        }
        self.inner.is_armed();
    }

    /// Changes the number of completions that the queue can hold (`ibv_resize_cq`). Completions in
    /// it stay, in order, and other threads may poll meanwhile.
    ///
    /// # Errors
    /// [`ObjectError::Size`] for no capacity or too much, [`ObjectError::Held`] if the queue holds
    /// more than would fit, [`ObjectError::Overrun`] if it has overflowed (all `EINVAL`). Nothing
    /// has changed then.
    pub fn resize(&self, capacity: usize) -> Result<(), ObjectError> {
        let (context, id) = (&self.inner.context, self.inner.ring.id());
        let fits = context.inner.engine.lock().adapter().fits_cq(capacity);
        context.explained("ibv_resize_cq", fits)?;
        let room = self.inner.ring.lacks(capacity); // without the lock: it may take long
        let resize = |engine: &Engine| engine.alter(|it| it.resize_cq_in(id, capacity, room));
        let resized = context.inner.shards.at(&self.inner.place, resize);
        context.explained("ibv_resize_cq", resized)
    }

    /// Sets the moderation of events: the number of completions, and the time, that an armed queue
    /// waits before its event (`ibv_modify_cq` with `IBV_CQ_ATTR_MODERATE`). An event that is being
    /// held back is delivered now.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`) for a period of more than 65,535 µs.
    pub fn moderate(&self, moderation: CqModeration) -> Result<(), ObjectError> {
        let (context, id) = (&self.inner.context, self.inner.ring.id());
        let moderate = |engine: &Engine| engine.command(|it, _| it.moderate_cq(id, moderation));
        let moderated = context.inner.shards.at(&self.inner.place, moderate);
        context.explained("ibv_modify_cq", moderated)
    }

    /// Moderation of events.
    #[must_use]
    pub fn moderation(&self) -> CqModeration {
        self.inner.ring.moderation()
    }

    /// Has queue pairs complete here that are in the first [shard](crate::OpenOptions::shards), as
    /// those of `rdma_cm` are, unless others do already. For the C interface.
    #[doc(hidden)]
    pub fn prefer_first_shard(&self) {
        let first = HomeShard::of(0);
        let _ = self.inner.context.inner.shards.place(&[&first, &self.inner.place], None);
    }

    /// Number of completions that can be taken without serving the device. For the C interface.
    #[doc(hidden)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.ring.len()
    }

    /// True if there are none.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if a completion was lost for lack of room; such a queue takes nothing more.
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
