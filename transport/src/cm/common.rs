//! State that connections and service ID resolutions share: communication IDs, listeners,
//! deadlines, and queues of messages and events.

use alloc::{boxed::Box, collections::VecDeque};

use hashbrown::HashSet;
use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    arrival::Arrival,
    command::{ConnId, ListenerId},
    config::CmConfig,
    deadlines::Deadlines,
    error::ConnError,
    event::ConnEvent,
    listeners::Listeners,
    message::{CmMad, Message},
    path::CmPath,
    resend::{RETRY_DELAY, Resend},
};
use crate::{
    event::DropReason,
    hash::IdHasher,
    time::{Instant, timeout},
};

/// Messages that may wait to be sent. More are dropped: their senders, or this side, send again.
const OUTBOX: usize = 4096;

/// A message that is due, with its path.
pub(crate) struct OutgoingMad {
    pub(crate) path: CmPath,
    pub(crate) mad: Box<CmMad>,
}

/// See the [module's documentation](self).
pub(super) struct Common {
    pub(super) config: CmConfig,
    /// GUID of the own adapter.
    pub(super) guid: u64,
    pub(super) listeners: Listeners,
    pub(super) deadlines: Deadlines,
    /// Communication IDs in use.
    ids: HashSet<u32, IdHasher>,
    outbox: VecDeque<OutgoingMad>,
    events: VecDeque<ConnEvent>,
}

impl Common {
    pub(super) fn new(config: CmConfig, guid: u64) -> Self {
        Self {
            config,
            guid,
            listeners: Listeners::default(),
            deadlines: Deadlines::default(),
            ids: HashSet::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // Communication IDs.

    /// Number of communication IDs in use.
    pub(super) fn ids_in_use(&self) -> usize {
        self.ids.len()
    }

    /// Takes a communication ID that is not in use.
    pub(super) fn take_id(&mut self, rng: &mut ChaCha12Rng) -> Result<u32, ConnError> {
        let (first, last) = (*self.config.ids.start(), *self.config.ids.end());
        let span = u64::from(last).saturating_sub(u64::from(first)) + 1;
        // with at most half of the range in use a free one is found after two draws on average
        let most = self.config.max_connections.min((span / 2) as usize);
        if self.ids.len() >= most {
            return Err(ConnError::TooMany(most));
        }
        loop {
            let id = (u64::from(first) + rng.next_u64() % span) as u32;
            if id != 0 && self.ids.insert(id) {
                return Ok(id);
            }
        }
    }

    /// Takes a communication ID for a request to a listener, and a place in the listener's backlog.
    pub(super) fn admit(
        &mut self,
        listener: ListenerId,
        arrival: &mut Arrival<'_>,
    ) -> Result<u32, DropReason> {
        if !self.listeners.has_room(listener) {
            return Err(DropReason::CmBacklog);
        }
        let id = self.take_id(arrival.rng).map_err(|_| DropReason::CmBacklog)?;
        self.listeners.enter_backlog(listener);
        Ok(id)
    }

    /// Gives a communication ID back, and clears its deadline.
    pub(super) fn release_id(&mut self, id: u32) {
        self.deadlines.clear(id);
        self.ids.remove(&id);
    }

    // Messages.

    pub(super) fn send(&mut self, path: CmPath, transaction: u64, message: Message) {
        self.enqueue(path, Box::new(CmMad::new(transaction, message)));
    }

    /// Answers a message that is about no connection of this side.
    pub(super) fn answer(&mut self, arrival: &Arrival<'_>, message: Message) {
        self.send(arrival.path, arrival.transaction, message);
    }

    pub(super) fn enqueue(&mut self, path: CmPath, mad: Box<CmMad>) {
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back(OutgoingMad { path, mad });
        }
    }

    /// Sends a message now, and, at the deadline of `id`, again.
    pub(super) fn send_until_answered(
        &mut self,
        now: Instant,
        id: u32,
        path: CmPath,
        mad: CmMad,
    ) -> Resend {
        let mad = Box::new(mad);
        self.enqueue(path, mad.clone());
        self.await_answer(now, id);
        Resend::new(mad, self.config.max_retries)
    }

    /// Sends a message once more if that is due. Returns false if it has been sent often enough.
    pub(super) fn resend(
        &mut self,
        now: Instant,
        id: u32,
        path: CmPath,
        resend: &mut Resend,
    ) -> bool {
        let Some(mad) = resend.next() else { return false };
        self.enqueue(path, mad);
        self.await_answer(now, id);
        true
    }

    /// Has a request that found no listener sent again after a while. Returns false if the peer has
    /// had time enough.
    pub(super) fn retry_later(&mut self, now: Instant, id: u32, resend: &mut Resend) -> bool {
        let retries = resend.outlasts_refusal(now, self.config.listen_grace);
        if retries {
            self.deadlines.set(id, now.plus(RETRY_DELAY));
        }
        retries
    }

    fn await_answer(&mut self, now: Instant, id: u32) {
        self.deadlines.set(id, now.plus(timeout(self.config.response_timeout)));
    }

    pub(super) fn has_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(super) fn poll_transmit(&mut self) -> Option<OutgoingMad> {
        self.outbox.pop_front()
    }

    // Events.

    pub(super) fn emit(&mut self, id: u32, event: impl FnOnce(ConnId) -> ConnEvent) {
        self.events.push_back(event(ConnId(id)));
    }

    pub(super) fn poll_event(&mut self) -> Option<ConnEvent> {
        self.events.pop_front()
    }
}
