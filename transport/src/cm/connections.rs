use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
};
use core::net::IpAddr;

use hashbrown::HashMap;

use super::{
    arrival::Arrival,
    command::{ConnId, Listen, ListenerId},
    common::{Common, OutgoingMad, RequestFaults},
    config::{CmConfig, MAX_SERVICE_TIMEOUT, MAX_TIME_WAIT},
    connection::{Connection, Remote},
    credit::Credit,
    error::ConnError,
    event::ConnEvent,
    message::{About, Apr, Lap, Message, Mra, PrivateData, Rej, RejectReason},
    qp_setup::QpSetup,
    resend::{MadReason, Resend},
    state::{CmState, Trigger, is_edge},
};
use crate::{
    event::DropReason,
    hash::IdHasher,
    ids::Qpn,
    psn::Psn,
    time::{Instant, timeout},
};

/// Communication manager of an adapter.
///
/// After each call, drain `poll_event` and `poll_transmit`, then read `poll_timeout`.
#[derive(Default, derive_more::Debug)]
#[debug("Connections {{ count: {}, .. }}", self.count())]
pub struct Connections {
    pub(super) common: Common,
    pub(super) conns: Conns,
    /// By address, adapter and communication ID; the address prevents impersonation.
    pub(super) by_remote_id: BTreeMap<(IpAddr, u64, u32), u32>,
    pub(super) by_remote_qpn: BTreeMap<(IpAddr, u64, Qpn), u32>,
    /// Address and request ID of resolutions that the program responds to.
    pub(super) resolutions: BTreeSet<(IpAddr, u32)>,
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
        Self { common: Common { config, guid, ..Common::default() }, ..Self::default() }
    }

    /// State of a connection or resolution; `None` after its end.
    #[must_use]
    pub fn state(&self, id: ConnId) -> Option<CmState> {
        self.conns.get(&id.0).map(|conn| conn.state)
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
            Message::SidrReq(req) => self.on_sidr_req(req, arrival),
            Message::SidrRep(rep) => self.on_sidr_rep(rep, arrival),
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
            self.on_deadline(now, id, expected);
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
        let conn = find(&mut self.conns, mra.remote_id, None, arrival)?;
        let (trigger, next) = match mra.about {
            About::Req => (Trigger::MraOfReq, CmState::MraReqRcvd),
            About::Rep if conn.remote_id() == mra.local_id => {
                (Trigger::MraOfRep, CmState::MraRepRcvd)
            }
            _ => return Err(DropReason::CmWrongState),
        };
        conn.check(trigger)?;
        conn.credit = Credit::PROVEN;
        conn.advance(trigger, next);
        // once per message: repeated MRAs could hold the connection forever
        if conn.resend.as_mut().is_some_and(Resend::acknowledge) {
            let service_timeout = mra.service_timeout.min(MAX_SERVICE_TIMEOUT);
            let wait = timeout(service_timeout) + timeout(self.common.config.response_timeout);
            self.common.deadlines.set(mra.remote_id, arrival.now.plus(wait));
        }
        Ok(())
    }

    /// Refuses an alternate path (12.8). On RoCE, Linux does not respond, and peers retry.
    pub(super) fn on_lap(&mut self, lap: &Lap, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let status = match find(&mut self.conns, lap.remote_id, Some(lap.local_id), arrival) {
            Ok(conn) if conn.local_qpn != lap.remote_qpn => Apr::INVALID_COMM_ID,
            Ok(conn) if conn.state.expects(Trigger::Lap) => Apr::UNSUPPORTED,
            Ok(_) => return Err(DropReason::CmWrongState),
            Err(DropReason::CmUnknownConnection) => Apr::INVALID_COMM_ID,
            Err(reason) => return Err(reason),
        };
        let (local_id, remote_id) = (lap.remote_id, lap.local_id);
        let apr = Apr { local_id, remote_id, status, ..Apr::default() };
        self.common.response(arrival, Message::Apr(Box::new(apr)));
        Ok(())
    }

    /// This side sends no LAP.
    pub(super) fn on_apr(&mut self, apr: &Apr, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        find(&mut self.conns, apr.remote_id, Some(apr.local_id), arrival)?;
        Err(DropReason::CmWrongState)
    }

    pub(super) fn on_deadline(
        &mut self,
        now: Instant,
        id: u32,
        expected: &dyn Fn(Qpn, Qpn) -> Option<Psn>,
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        // the peer's queue pair has sent packets: its RTU was lost (12.9.6)
        if matches!(conn.state, CmState::RepSent | CmState::MraRepRcvd)
            && let (Some(remote), Some(terms)) = (&conn.remote, &conn.terms)
            && terms.managed
            && expected(conn.local_qpn, remote.qpn).is_some_and(|psn| psn != terms.rep.starting_psn)
        {
            return self.confirm(Trigger::Notify, id, None);
        }
        let Connection { state, path, credit, resend, .. } = conn;
        let ends = *state == CmState::DreqSent;
        let may_send = || if ends { credit.take_last() } else { credit.take() };
        if let Some(resend) = resend
            && self.common.resend(now, id, *path, resend, may_send)
        {
            return;
        }
        if ends {
            self.emit(id, ConnEvent::Disconnected);
            return self.enter_time_wait(Trigger::Timeout, now, id);
        }
        if !conn.is_resolution() && conn.credit.take_last() {
            self.give_up(id);
        }
        self.emit(id, ConnEvent::Unreachable);
        self.remove(Trigger::Timeout, id);
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
        let remote = conn.remote.unwrap_or_default();
        conn.advance(on, CmState::TimeWait);
        self.common.record_changed(id);
        let until = now.plus(conn.time_wait.min(MAX_TIME_WAIT));
        forget(&mut self.by_remote_qpn, &(conn.path.peer(), remote.guid, remote.qpn), id);
        if let Some(other) = self.common.enter_time_wait(id, until) {
            self.leave_time_wait(other);
        }
    }

    pub(super) fn leave_time_wait(&mut self, id: u32) {
        self.emit(id, ConnEvent::TimeWaitExit);
        self.remove(Trigger::Timeout, id);
    }

    pub(super) fn remove(&mut self, on: Trigger, id: u32) {
        self.common.release_id(id);
        let Some(conn) = self.conns.remove(&id) else { return };
        let (from, peer) = (conn.state, conn.path.peer());
        debug_assert!(is_edge(Some(from), on, None), "{from:?} / {on:?} > gone");
        if !conn.is_resolution() {
            self.common.record_changed(id);
        }
        if let Some(listener) = conn.listener {
            self.common.listeners.leave_backlog(listener);
        }
        if let Some((request_id, _)) = conn.request {
            self.resolutions.remove(&(peer, request_id));
        }
        if let Some(remote) = conn.remote {
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

/// The connection must allow the command.
pub(super) fn commanded(
    conns: &mut Conns,
    id: ConnId,
    command: Trigger,
) -> Result<&mut Connection, ConnError> {
    let conn = conns.get_mut(&id.0).ok_or(ConnError::Unknown)?;
    if conn.state.expects(command) { Ok(conn) } else { Err(ConnError::State(conn.state)) }
}

/// The peer must match, and its communication ID; `None`: that may be new.
pub(super) fn find<'a>(
    conns: &'a mut Conns,
    own: u32,
    remote: Option<u32>,
    arrival: &Arrival<'_>,
) -> Result<&'a mut Connection, DropReason> {
    let is_it = |conn: &&mut Connection| {
        !conn.is_resolution() && remote.is_none_or(|remote| conn.remote_id() == remote)
    };
    let conn = conns.get_mut(&own).filter(is_it).ok_or(DropReason::CmUnknownConnection)?;
    arrival.check_peer(&conn.path)?;
    Ok(conn)
}
