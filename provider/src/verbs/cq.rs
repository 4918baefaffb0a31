use std::sync::Arc;

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
    /// Identifier in events.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.inner.ring.id()
    }

    /// Capacity in completions; overflow fails the queue and its queue pairs.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.ring.capacity()
    }

    /// Takes the oldest completions into `to`, and returns their number (`ibv_poll_cq`).
    ///
    /// Serves the device first if there are none.
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

    /// Like [`poll`](Self::poll), but passes up to `limit` completions to `take`.
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

    /// Like [`poll`](Self::poll), but takes only the oldest completion.
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

    /// Requests an event at the next completion of this kind (`ibv_req_notify_cq`).
    ///
    /// Earlier completions cause none: poll after arming.
    pub fn req_notify(&self, kind: NotifyKind) {
        self.inner.ring.req_notify(kind);
        self.inner.is_armed();
    }

    /// Arms as network adapters do, for programs that do not poll after arming.
    ///
    /// A completion after the last incomplete poll causes the event at once. For the C interface.
    #[doc(hidden)]
    pub fn req_notify_unpolled(&self, kind: NotifyKind) {
        if self.inner.ring.req_notify_unpolled(kind) {
            self.inner.wake();
        }
        self.inner.is_armed();
    }

    /// Changes the capacity (`ibv_resize_cq`).
    ///
    /// Completions stay in order; other threads may poll meanwhile.
    ///
    /// # Errors
    /// [`ObjectError::Size`] for zero or excess capacity, [`ObjectError::Held`] if the content does
    /// not fit, [`ObjectError::Overrun`] after overflow (all `EINVAL`). Nothing changes.
    pub fn resize(&self, capacity: usize) -> Result<(), ObjectError> {
        let (context, id) = (&self.inner.context, self.inner.ring.id());
        let fits = context.inner.engine.lock().adapter().fits_cq(capacity);
        context.explained("ibv_resize_cq", fits)?;
        let room = self.inner.ring.lacks(capacity); // without the lock: it may take long
        let resize = |engine: &Engine| engine.alter(|it| it.resize_cq(id, capacity, room));
        let resized = context.inner.shards.at(&self.inner.place, resize);
        context.explained("ibv_resize_cq", resized)
    }

    /// Sets event moderation: the count and time that an armed queue waits for (`ibv_modify_cq`,
    /// `IBV_CQ_ATTR_MODERATE`). A delayed event is delivered now.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`) above 65,535 µs.
    pub fn moderate(&self, moderation: CqModeration) -> Result<(), ObjectError> {
        let (context, id) = (&self.inner.context, self.inner.ring.id());
        let moderate = |engine: &Engine| engine.command(|it, _| it.moderate_cq(id, moderation));
        let moderated = context.inner.shards.at(&self.inner.place, moderate);
        context.explained("ibv_modify_cq", moderated)
    }

    /// Event moderation.
    #[must_use]
    pub fn moderation(&self) -> CqModeration {
        self.inner.ring.moderation()
    }

    /// Places the queue, unless placed, in the first [shard](crate::OpenOptions::shards), as for
    /// `rdma_cm`. For the C interface.
    #[doc(hidden)]
    pub fn prefer_first_shard(&self) {
        let first = HomeShard::of(0);
        let _ = self.inner.context.inner.shards.place(&[&first, &self.inner.place], None);
    }

    /// Number of completions, without service. For the C interface.
    #[doc(hidden)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.ring.len()
    }

    /// True if the queue is empty.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if a completion was lost by overflow; the queue then takes no more.
    #[must_use]
    pub fn has_overrun(&self) -> bool {
        self.inner.ring.has_overrun()
    }
}

opaque_debug!(CompletionQueue, |this| id: this.id(), capacity: this.capacity());
