use alloc::{boxed::Box, collections::BTreeMap};
use core::{fmt, net::IpAddr};

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;

use super::{
    arrival::Arrival,
    command::{ConnId, Listen, ListenerId},
    common::{Common, OutgoingMad, RequestFaults},
    config::{CmConfig, MAX_SERVICE_TIMEOUT, MAX_TIME_WAIT},
    connection::{Accepted, ConnState, Connection, Remote},
    credit::Credit,
    error::ConnError,
    event::ConnEvent,
    message::{About, Message, Mra, PrivateData, Rej, RejectReason},
    path::CmPath,
    qp_setup::QpSetup,
    reason::MadReason,
    resend::Resend,
    service::ServiceId,
    sidr::Sidr,
    state::{CmState, Trigger, is_edge},
};
use crate::{
    addr::QKey,
    event::DropReason,
    hash::IdHasher,
    ids::Qpn,
    psn::Psn,
    time::{Instant, timeout},
};

/// Communication manager of an adapter.
///
/// After each call, drain `poll_event` and `poll_transmit`, then read `poll_timeout`.
pub struct Connections {
    pub(super) common: Common,
    pub(super) conns: Conns,
    /// By address, adapter and communication ID; the address prevents impersonation.
    pub(super) by_remote_id: BTreeMap<(IpAddr, u64, u32), u32>,
    pub(super) by_remote_qpn: BTreeMap<(IpAddr, u64, Qpn), u32>,
    pub(super) sidr: Sidr,
    /// PSN of QP1's next packet.
    psn: Psn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyOutcome {
    /// None.
    Handled,
    /// Then call `complete` or `fail`.
    MoveQueuePair(ConnId),
}

pub(super) type Conns = HashMap<u32, Connection, IdHasher>;

impl Connections {
    pub(crate) fn new(config: CmConfig, guid: u64) -> Self {
        Self {
            common: Common::new(config, guid),
            conns: Conns::default(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            sidr: Sidr::default(),
            psn: Psn::default(),
        }
    }

    /// State of a connection or resolution; `None` after its end.
    #[must_use]
    pub fn state(&self, id: ConnId) -> Option<CmState> {
        let conn = self.conns.get(&id.0).map(|conn| conn.state.name());
        conn.or_else(|| self.sidr.state(id))
    }

    /// Connections and resolutions, at most twice [`CmConfig::max_connections`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.common.ids.len()
    }

    /// Attributes for RTR and RTS (`rdma_init_qp_attr`), from REQ or REP until established.
    #[must_use]
    pub fn qp_setup(&self, id: ConnId) -> Option<QpSetup> {
        self.conns.get(&id.0)?.qp_setup()
    }

    pub(super) fn check(&self, id: ConnId, command: Trigger) -> Result<(), ConnError> {
        match self.state(id) {
            Some(state) if state.expects(command) => Ok(()),
            Some(state) => Err(ConnError::State(state)),
            None => Err(ConnError::Unknown),
        }
    }

    /// Rejects incoming requests, for tests of programs.
    pub fn set_faults(&mut self, faults: Option<Box<dyn RequestFaults>>) {
        self.common.faults = faults;
    }

    pub(crate) fn listen(&mut self, listen: Listen) -> Result<ListenerId, ConnError> {
        self.common.listeners.add(listen)
    }

    /// Removes a listener; its requests stay.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub fn unlisten(&mut self, listener: ListenerId) -> Result<(), ConnError> {
        self.common.listeners.remove(listener)
    }

    pub(crate) fn sidr_request(
        &mut self,
        now: Instant,
        service_id: ServiceId,
        private_data: &[u8],
        path: CmPath,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        self.sidr.request(&mut self.common, now, service_id, private_data, path, rng)
    }

    pub(crate) fn sidr_respond(
        &mut self,
        id: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        self.check(id, Trigger::SidrRespond)?;
        self.sidr.respond(&mut self.common, id, receiver, private_data)
    }

    pub(crate) fn handle(
        &mut self,
        message: &Message,
        arrival: &mut Arrival<'_>,
    ) -> Result<ReplyOutcome, DropReason> {
        match message {
            Message::Rep(rep) => return self.on_rep(rep, arrival),
            Message::Req(req) => self.on_req(req, arrival),
            Message::Mra(mra) => self.on_mra(mra, arrival),
            Message::Rej(rej) => self.on_rej(rej, arrival),
            Message::Rtu(rtu) => self.on_rtu(rtu, arrival),
            Message::Dreq(dreq) => self.on_dreq(dreq, arrival),
            Message::Drep(drep) => self.on_drep(drep, arrival),
            Message::Lap(lap) => self.on_lap(lap, arrival),
            Message::Apr(apr) => self.on_apr(apr, arrival),
            Message::SidrReq(req) => self.sidr.on_req(&mut self.common, req, arrival),
            Message::SidrRep(rep) => self.sidr.on_rep(&mut self.common, rep, arrival),
        }?;
        Ok(ReplyOutcome::Handled)
    }

    /// `expected(local, remote)` is a local queue pair's expected PSN.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        expected: &dyn Fn(Qpn, Qpn) -> Option<Psn>,
    ) {
        while let Some(id) = self.common.deadlines.pop_due(now) {
            match self.sidr.state(ConnId(id)) {
                Some(_) => self.sidr.on_deadline(&mut self.common, now, id),
                None => self.on_deadline(now, id, expected),
            }
        }
        while let Some(id) = self.common.time_waits.pop_due(now) {
            self.leave_time_wait(id);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let Common { deadlines, time_waits, .. } = &self.common;
        deadlines.next().into_iter().chain(time_waits.next()).min()
    }

    pub(crate) fn poll_event(&mut self) -> Option<ConnEvent> {
        self.common.events.pop_front()
    }

    pub(crate) fn has_transmit(&self) -> bool {
        !self.common.outbox.is_empty()
    }

    pub(crate) fn is_due(&self) -> bool {
        let Common { outbox, events, records, .. } = &self.common;
        !outbox.is_empty() || !events.is_empty() || !records.is_empty()
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<(OutgoingMad, Psn)> {
        let mad = self.common.outbox.pop_front()?;
        let psn = self.psn;
        self.psn = psn.plus(1);
        Some((mad, psn))
    }

    pub(super) fn on_mra(&mut self, mra: &Mra, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let conn = find_own(&mut self.conns, mra.remote_id, arrival)?;
        let trigger = match mra.about {
            About::Req => Trigger::MraOfReq,
            About::Rep if conn.remote_id() == mra.local_id => Trigger::MraOfRep,
            _ => return Err(DropReason::CmWrongState),
        };
        if !conn.state.name().expects(trigger) {
            return Err(DropReason::CmWrongState);
        }
        conn.credit = Credit::PROVEN;
        conn.advance(trigger, |state| match state {
            ConnState::ReqSent(requested) => ConnState::MraReqRcvd(requested),
            ConnState::RepSent(accepted) => ConnState::MraRepRcvd(accepted),
            same => same,
        });
        // once per message: repeated MRAs could hold the connection forever
        if conn.state.resend_mut().is_some_and(Resend::acknowledge) {
            let service_timeout = mra.service_timeout.min(MAX_SERVICE_TIMEOUT);
            let wait = timeout(service_timeout) + timeout(self.common.config.response_timeout);
            self.common.deadlines.set(mra.remote_id, arrival.now.plus(wait));
        }
        Ok(())
    }

    pub(super) fn on_deadline(
        &mut self,
        now: Instant,
        id: u32,
        expected: &dyn Fn(Qpn, Qpn) -> Option<Psn>,
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        // the peer's queue pair has sent packets: its RTU was lost (12.9.6)
        if let ConnState::RepSent(Accepted { remote, rep, managed: true, .. })
        | ConnState::MraRepRcvd(Accepted { remote, rep, managed: true, .. }) = &conn.state
            && expected(conn.local_qpn, remote.qpn).is_some_and(|psn| psn != rep.starting_psn)
        {
            return self.confirm(Trigger::Notify, id, None);
        }
        let Connection { path, credit, .. } = conn;
        let ends = matches!(conn.state, ConnState::DreqSent(..));
        let may_send = || if ends { credit.take_last() } else { credit.take() };
        if let Some(resend) = conn.state.resend_mut()
            && self.common.resend(now, id, *path, resend, may_send)
        {
            return;
        }
        match conn.state {
            ConnState::DreqSent(..) => {
                self.emit(id, |conn| ConnEvent::Disconnected { conn });
                self.enter_time_wait(Trigger::Timeout, now, id);
            }
            _ => {
                if conn.credit.take_last() {
                    self.give_up(id);
                }
                self.emit(id, |conn| ConnEvent::Unreachable { conn });
                self.remove(Trigger::Timeout, id);
            }
        }
    }

    /// Extends the peer's wait (12.9.8.6).
    pub(super) fn send_mra(&mut self, id: u32, about: About) {
        let Some(conn) = self.conns.get(&id) else { return };
        let mra = Mra {
            local_id: id,
            remote_id: conn.remote_id(),
            about,
            service_timeout: self.common.config.service_timeout,
            private_data: PrivateData::default(),
        };
        self.common.send(MadReason::Repeated, conn.path, conn.transaction, Message::Mra(mra));
    }

    /// Rejects with TIMEOUT, and the GUID for a peer without this communication ID.
    pub(super) fn give_up(&mut self, id: u32) {
        let Some(conn) = self.conns.get(&id) else { return };
        let rej = Rej::new(id, conn.remote_id(), About::Other, RejectReason::TIMEOUT)
            .with_info(&self.common.guid.to_be_bytes());
        let rej = Message::Rej(Box::new(rej));
        self.common.send(MadReason::GivenUp, conn.path, conn.transaction, rej);
    }

    pub(super) fn emit(&mut self, id: u32, event: impl FnOnce(ConnId) -> ConnEvent) {
        if self.conns.get(&id).is_some_and(|conn| !conn.abandoned) {
            self.common.emit(id, event);
        }
    }

    pub(super) fn index(&mut self, id: u32, peer: IpAddr, remote: &Remote) {
        self.by_remote_id.insert((peer, remote.guid, remote.id), id);
        self.by_remote_qpn.insert((peer, remote.guid, remote.qpn), id);
    }

    /// Keeps both communication IDs to recognise a late REQ. As in Linux, the peer's queue pair may
    /// reconnect.
    pub(super) fn enter_time_wait(&mut self, on: Trigger, now: Instant, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let remote = conn.state.remote().copied().unwrap_or_default();
        conn.advance(on, |_| ConnState::TimeWait(remote));
        self.common.record_changed(id);
        let until = now.plus(conn.time_wait.min(MAX_TIME_WAIT));
        forget(&mut self.by_remote_qpn, &(conn.path.peer(), remote.guid, remote.qpn), id);
        if let Some(other) = self.common.enter_time_wait(id, until) {
            self.leave_time_wait(other);
        }
    }

    pub(super) fn leave_time_wait(&mut self, id: u32) {
        self.emit(id, |conn| ConnEvent::TimeWaitExit { conn });
        self.remove(Trigger::Timeout, id);
    }

    pub(super) fn remove(&mut self, on: Trigger, id: u32) {
        self.common.release_id(id);
        self.common.record_changed(id);
        let Some(Connection { state, path, .. }) = self.conns.remove(&id) else { return };
        let from = state.name();
        debug_assert!(is_edge(Some(from), on, None), "{from:?} / {on:?} > gone");
        if let ConnState::ReqRcvd(received) = &state {
            self.common.listeners.leave_backlog(received.listener);
        }
        if let Some(remote) = state.remote() {
            let peer = path.peer();
            forget(&mut self.by_remote_id, &(peer, remote.guid, remote.id), id);
            forget(&mut self.by_remote_qpn, &(peer, remote.guid, remote.qpn), id);
        }
    }
}

fn forget<K: Ord>(map: &mut BTreeMap<K, u32>, key: &K, id: u32) {
    if map.get(key) == Some(&id) {
        map.remove(key);
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("count", &self.count()).finish_non_exhaustive()
    }
}

pub(super) fn get_mut(conns: &mut Conns, id: ConnId) -> Result<&mut Connection, ConnError> {
    conns.get_mut(&id.0).ok_or(ConnError::Unknown)
}

/// Both communication IDs and the peer must match.
pub(super) fn find<'a>(
    conns: &'a mut Conns,
    own: u32,
    remote: u32,
    arrival: &Arrival<'_>,
) -> Result<&'a mut Connection, DropReason> {
    let conn = conns.get_mut(&own).filter(|conn| conn.remote_id() == remote);
    let conn = conn.ok_or(DropReason::CmUnknownConnection)?;
    arrival.check_peer(&conn.path)?;
    Ok(conn)
}

/// Like [`find`], but the peer's communication ID may be new.
pub(super) fn find_own<'a>(
    conns: &'a mut Conns,
    own: u32,
    arrival: &Arrival<'_>,
) -> Result<&'a mut Connection, DropReason> {
    let conn = conns.get_mut(&own).ok_or(DropReason::CmUnknownConnection)?;
    arrival.check_peer(&conn.path)?;
    Ok(conn)
}
