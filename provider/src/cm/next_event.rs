//! Creation of ids, and their events.

use std::{sync::atomic::Ordering, time::Duration};

use roce_transport::cm::PortSpace;

use super::{
    channel::EventChannel, event::CmEvent, id::CmId, kind::EventKind, shared::QueuedEvent,
};
use crate::{ChannelError, clock, readiness};

impl EventChannel {
    /// Creates an id (`rdma_create_id`): RC for [`PortSpace::Tcp`], UD for [`PortSpace::Udp`] and
    /// [`PortSpace::Ipoib`], by default RC for [`PortSpace::Ib`].
    #[must_use]
    pub fn create_id(&self, port_space: PortSpace) -> CmId {
        CmId::create(self, port_space, false)
    }

    /// Takes the next event (non-blocking `rdma_get_cm_event`). If none has come, serves the
    /// devices.
    ///
    /// A disconnect found by this call is left to the next call: a program that disconnects now
    /// would lose completions that came with it.
    #[must_use]
    pub fn poll(&self) -> Option<CmEvent> {
        self.take().or_else(|| {
            let contexts = self.contexts();
            for context in &contexts {
                context.inner.engine.progress();
            }
            if self.inner.queue.first_is(|event| event.kind == EventKind::Disconnected) {
                return None;
            }
            let event = self.take();
            if event.is_none() && self.inner.exposed.load(Ordering::Relaxed) {
                contexts.iter().for_each(|context| context.inner.engine.hand_over());
            }
            event
        })
    }

    /// Sleeps until an event (`rdma_get_cm_event`), up to `limit`.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`]; [`ChannelError::Io`] if the system cannot wait.
    pub fn wait(&self, limit: Option<Duration>) -> Result<CmEvent, ChannelError> {
        let end = limit.map(|limit| clock::now().plus(limit));
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
            }
            let left = end.map(|end| end.since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ChannelError::TimedOut);
            }
            let contexts = self.contexts();
            let descriptor = self.inner.queue.descriptor();
            if let [only] = &contexts[..] {
                // waiting on the sockets saves a thread switch
                only.inner.engine.wait_on_sockets(descriptor, left)?;
            } else {
                contexts.iter().for_each(|context| context.inner.engine.hand_over());
                drop(contexts);
                readiness::wait(&[descriptor], left)?;
            }
        }
    }

    /// Next event, without serving the devices.
    #[doc(hidden)] // for rsockets
    pub fn take(&self) -> Option<CmEvent> {
        loop {
            // a destroyed id's events wait here for its destroyer
            let (event, owner) =
                self.inner.queue.take_first(|event| CmId::of(event.recipient()))?;
            let QueuedEvent { id, request, kind, status, param } = event;
            let (id, listen_id) = match request {
                None => (owner, None),
                // a destroyed listener rejects its untaken requests itself
                Some(request) => match owner.adopt(id, &request) {
                    Some(id) => (id, Some(owner)),
                    None => continue,
                },
            };
            let event = CmEvent { id, listen_id, kind, status, param };
            event.explain();
            return Some(event);
        }
    }
}
