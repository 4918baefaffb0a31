use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
};
use core::{fmt, net::IpAddr};

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    arrival::{Arrival, CmPath},
    command::{ConnId, ListenerId},
    config::CmConfig,
    deadlines::Deadlines,
    error::ConnError,
    event::ConnEvent,
    listeners::Listeners,
    message::{CmMad, Message},
    resend::{MadReason, RETRY_DELAY, Resend},
};
use crate::{
    event::DropReason,
    hash::IdHasher,
    time::{Instant, timeout},
};

/// Excess is dropped, and retransmitted later.
const OUTBOX: usize = 4096;

pub(crate) struct OutgoingMad {
    pub(crate) path: CmPath,
    pub(crate) mad: Box<CmMad>,
    pub(crate) reason: MadReason,
}

#[derive(Default)]
pub(super) struct Common {
    pub(super) config: CmConfig,
    pub(super) guid: u64,
    pub(super) listeners: Listeners,
    pub(super) deadlines: Deadlines,
    pub(super) time_waits: Deadlines,
    /// Communication IDs, each with the peer charged for its REQ.
    pub(super) ids: HashMap<u32, Option<IpAddr>, IdHasher>,
    pub(super) requests: BTreeMap<IpAddr, usize>,
    pub(super) outbox: VecDeque<OutgoingMad>,
    pub(super) events: VecDeque<ConnEvent>,
    pub(super) records: VecDeque<ConnId>,
    pub(super) faults: Option<Box<dyn RequestFaults>>,
}

/// Rejects REQs; called under the adapter's lock, must not wait.
pub trait RequestFaults: Send + fmt::Debug {
    /// True to reject a REQ.
    fn rejects(&mut self) -> bool;
}

impl Common {
    /// Most connections, and most in time wait.
    fn most(&self) -> usize {
        // half the range in use: two draws find a free ID on average
        self.config.max_connections.min((self.span() / 4) as usize)
    }

    fn span(&self) -> u64 {
        let (first, last) = (*self.config.ids.start(), *self.config.ids.end());
        u64::from(last).saturating_sub(u64::from(first)) + 1
    }

    fn check_room(&self) -> Result<(), ConnError> {
        let most = self.most();
        let has_room = self.ids.len() - self.time_waits.len() < most;
        if has_room { Ok(()) } else { Err(ConnError::TooMany(most)) }
    }

    pub(super) fn take_id(&mut self, rng: &mut ChaCha12Rng) -> Result<u32, ConnError> {
        self.check_room()?;
        loop {
            let id = (u64::from(*self.config.ids.start()) + rng.next_u64() % self.span()) as u32;
            if id != 0 && !self.ids.contains_key(&id) {
                self.ids.insert(id, None);
                return Ok(id);
            }
        }
    }

    pub(super) fn adopt_id(&mut self, id: u32) -> Result<(), ConnError> {
        if self.config.ids.contains(&id) || self.ids.contains_key(&id) {
            return Err(ConnError::OwnId);
        }
        self.check_room()?;
        self.ids.insert(id, None);
        Ok(())
    }

    pub(super) fn admit(
        &mut self,
        listener: ListenerId,
        arrival: &mut Arrival<'_>,
    ) -> Result<u32, DropReason> {
        if !self.listeners.has_room(listener) {
            return Err(DropReason::CmBacklog);
        }
        let peer = arrival.path.peer();
        if self.requests.get(&peer).is_some_and(|&count| count >= self.config.max_per_peer) {
            return Err(DropReason::CmBacklog);
        }
        let id = self.take_id(arrival.rng).map_err(|_| DropReason::CmBacklog)?;
        self.ids.insert(id, Some(peer));
        *self.requests.entry(peer).or_default() += 1;
        self.listeners.enter_backlog(listener);
        Ok(id)
    }

    pub(super) fn release_id(&mut self, id: u32) {
        self.discount(id);
        self.deadlines.clear(id);
        self.time_waits.clear(id);
        self.ids.remove(&id);
    }

    /// Returns the ID whose time wait must end early, if any.
    #[must_use]
    pub(super) fn enter_time_wait(&mut self, id: u32, until: Instant) -> Option<u32> {
        let is_full = self.time_waits.len() >= self.most();
        let ends = if is_full { self.time_waits.pop_first() } else { None };
        self.discount(id);
        self.deadlines.clear(id);
        self.time_waits.set(id, until);
        ends
    }

    fn discount(&mut self, id: u32) {
        let Some(peer) = self.ids.get_mut(&id).and_then(Option::take) else { return };
        if let Some(count) = self.requests.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.requests.remove(&peer);
            }
        }
    }

    pub(super) fn send(
        &mut self,
        reason: MadReason,
        path: CmPath,
        transaction: u64,
        message: Message,
    ) {
        self.enqueue(path, Box::new(CmMad::new(transaction, message)), reason);
    }

    pub(super) fn response(&mut self, arrival: &Arrival<'_>, message: Message) {
        self.send(MadReason::Response, arrival.path, arrival.transaction, message);
    }

    pub(super) fn enqueue(&mut self, path: CmPath, mad: Box<CmMad>, reason: MadReason) {
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back(OutgoingMad { path, mad, reason });
        }
    }

    pub(super) fn send_until_response(
        &mut self,
        now: Instant,
        id: u32,
        path: CmPath,
        mad: CmMad,
        may_send: bool,
    ) -> Resend {
        let mad = Box::new(mad);
        if may_send {
            self.enqueue(path, mad.clone(), MadReason::First);
        }
        self.await_response(now, id);
        Resend::new(mad, self.config.max_retries)
    }

    /// Returns false after the last retry.
    pub(super) fn resend(
        &mut self,
        now: Instant,
        id: u32,
        path: CmPath,
        resend: &mut Resend,
        may_send: impl FnOnce() -> bool,
    ) -> bool {
        let Some((mad, reason)) = resend.next() else { return false };
        if may_send() {
            self.enqueue(path, mad, reason);
        }
        self.await_response(now, id);
        true
    }

    /// Returns false after `listen_grace`.
    pub(super) fn retry_later(&mut self, now: Instant, id: u32, resend: &mut Resend) -> bool {
        let retries = resend.outlasts_refusal(now, self.config.listen_grace);
        if retries {
            self.deadlines.set(id, now.plus(RETRY_DELAY));
        }
        retries
    }

    fn await_response(&mut self, now: Instant, id: u32) {
        self.deadlines.set(id, now.plus(timeout(self.config.response_timeout)));
    }

    pub(super) fn emit(&mut self, id: u32, event: impl FnOnce(ConnId) -> ConnEvent) {
        self.events.push_back(event(ConnId(id)));
    }

    pub(super) fn record_changed(&mut self, id: u32) {
        if self.config.tells_records {
            self.records.push_back(ConnId(id));
        }
    }
}
