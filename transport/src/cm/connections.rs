//! All connections, and the ways to find one.

use alloc::{boxed::Box, collections::BTreeMap};
use core::net::IpAddr;

use hashbrown::HashMap;

use super::{
    arrival::Arrival,
    command::ConnId,
    common::Common,
    config::{MAX_SERVICE_TIMEOUT, MAX_TIME_WAIT},
    connection::{Accepted, ConnState, Connection, Remote},
    credit::Credit,
    error::ConnError,
    event::ConnEvent,
    message::{About, Message, Mra, PrivateData, Rej, RejectReason},
    reason::MadReason,
    resend::Resend,
    state::{CmState, Trigger, is_edge},
};
use crate::{
    event::DropReason,
    hash::IdHasher,
    ids::Qpn,
    psn::Psn,
    time::{Instant, timeout},
};

/// All connections, and the ways to find one. Setting up stands in `active` and `passive`, ending
/// in `release`.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) conns: HashMap<u32, Connection, IdHasher>,
    /// Connections by the peer's address, adapter and communication ID. The address is part of the
    /// key so that no other host can take the peer's place.
    pub(super) by_remote_id: BTreeMap<(IpAddr, u64, u32), u32>,
    /// Connections by the peer's address, adapter and queue pair.
    pub(super) by_remote_qpn: BTreeMap<(IpAddr, u64, Qpn), u32>,
}

impl Connections {
    // Getters.

    pub(super) fn state(&self, id: ConnId) -> Option<CmState> {
        self.conns.get(&id.0).map(|conn| conn.state.name())
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Result<&mut Connection, ConnError> {
        self.conns.get_mut(&id.0).ok_or(ConnError::Unknown)
    }

    /// The connection that a message is about: both sides' communication IDs fit, and it comes from
    /// the connection's peer.
    pub(super) fn find(
        &mut self,
        own: u32,
        remote: u32,
        arrival: &Arrival<'_>,
    ) -> Result<&mut Connection, DropReason> {
        let conn = self.conns.get_mut(&own).filter(|conn| conn.remote_id() == remote);
        let conn = conn.ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(&conn.path)?;
        Ok(conn)
    }

    /// The same for an answer, which may be the first message with the peer's communication ID.
    pub(super) fn find_own(
        &mut self,
        own: u32,
        arrival: &Arrival<'_>,
    ) -> Result<&mut Connection, DropReason> {
        let conn = self.conns.get_mut(&own).ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(&conn.path)?;
        Ok(conn)
    }

    // Both sides.

    /// More time for an answer.
    pub(super) fn on_mra(
        &mut self,
        common: &mut Common,
        mra: &Mra,
        arrival: &Arrival<'_>,
    ) -> Result<(), DropReason> {
        let conn = self.find_own(mra.remote_id, arrival)?;
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
        // once for each message that waits: repeats could hold the connection for ever
        if conn.state.resend_mut().is_some_and(Resend::acknowledge) {
            let service_timeout = mra.service_timeout.min(MAX_SERVICE_TIMEOUT);
            let wait = timeout(service_timeout) + timeout(common.config.response_timeout);
            common.deadlines.set(mra.remote_id, arrival.now.plus(wait));
        }
        Ok(())
    }

    /// Sends a message again, or reports that it had no answer. `expected` tells which PSN an own
    /// queue pair expects from a peer's.
    pub(super) fn on_deadline(
        &mut self,
        common: &mut Common,
        now: Instant,
        id: u32,
        expected: &dyn Fn(Qpn, Qpn) -> Option<Psn>,
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        // packets of the peer's queue pair have come: its RTU was lost (12.9.6)
        if let ConnState::RepSent(Accepted { remote, rep, managed: true, .. })
        | ConnState::MraRepRcvd(Accepted { remote, rep, managed: true, .. }) = &conn.state
            && expected(conn.local_qpn, remote.qpn).is_some_and(|psn| psn != rep.starting_psn)
        {
            return self.confirm(common, Trigger::Notify, id, None);
        }
        let Connection { path, credit, .. } = conn;
        let ends = matches!(conn.state, ConnState::DreqSent(..));
        let may_send = || if ends { credit.take_last() } else { credit.take() };
        if let Some(resend) = conn.state.resend_mut()
            && common.resend(now, id, *path, resend, may_send)
        {
            return;
        }
        match conn.state {
            ConnState::DreqSent(..) => {
                self.emit(common, id, |conn| ConnEvent::Disconnected { conn });
                self.enter_time_wait(common, Trigger::Timeout, now, id);
            }
            _ => {
                if conn.credit.take_last() {
                    self.give_up(common, id);
                }
                self.emit(common, id, |conn| ConnEvent::Unreachable { conn });
                self.remove(common, Trigger::Timeout, id);
            }
        }
    }

    /// Has the peer wait longer (12.9.8.6).
    pub(super) fn send_mra(&self, common: &mut Common, id: u32, about: About) {
        let Some(conn) = self.conns.get(&id) else { return };
        let mra = Mra {
            local_id: id,
            remote_id: conn.remote_id(),
            about,
            service_timeout: common.config.service_timeout,
            private_data: PrivateData::default(),
        };
        common.send_for(MadReason::Repeated, conn.path, conn.transaction, Message::Mra(mra));
    }

    /// Tells the peer that its answer is not waited for any more. If it does not know this side's
    /// communication ID, it finds the connection by the adapter's GUID.
    pub(super) fn give_up(&self, common: &mut Common, id: u32) {
        let Some(conn) = self.conns.get(&id) else { return };
        let rej = Rej::new(id, conn.remote_id(), About::Other, RejectReason::TIMEOUT)
            .with_info(&common.guid.to_be_bytes());
        let rej = Message::Rej(Box::new(rej));
        common.send_for(MadReason::GivenUp, conn.path, conn.transaction, rej);
    }

    /// Reports what happens to a connection, unless the program has no more interest.
    pub(super) fn emit(
        &self,
        common: &mut Common,
        id: u32,
        event: impl FnOnce(ConnId) -> ConnEvent,
    ) {
        if self.conns.get(&id).is_some_and(|conn| !conn.abandoned) {
            common.emit(id, event);
        }
    }

    /// Makes a connection findable by the peer's names.
    pub(super) fn index(&mut self, id: u32, peer: IpAddr, remote: &Remote) {
        self.by_remote_id.insert((peer, remote.guid, remote.id), id);
        self.by_remote_qpn.insert((peer, remote.guid, remote.qpn), id);
    }

    /// Nothing more is sent or expected, but the names stay taken for a while: this side's, and the
    /// peer's communication ID, so that a late repeat of its request is known as one. Its queue
    /// pair is free: it may request another connection, as Linux lets it.
    pub(super) fn enter_time_wait(
        &mut self,
        common: &mut Common,
        on: Trigger,
        now: Instant,
        id: u32,
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let remote = conn.state.remote().copied().unwrap_or_default();
        conn.advance(on, |_| ConnState::TimeWait(remote));
        common.note_record(id);
        let until = now.plus(conn.time_wait.min(MAX_TIME_WAIT));
        forget(&mut self.by_remote_qpn, &(conn.path.peer(), remote.guid, remote.qpn), id);
        if let Some(other) = common.enter_time_wait(id, until) {
            self.leave_time_wait(common, other);
        }
    }

    /// The end of a time wait: the connection is gone.
    pub(super) fn leave_time_wait(&mut self, common: &mut Common, id: u32) {
        self.emit(common, id, |conn| ConnEvent::TimeWaitExit { conn });
        self.remove(common, Trigger::Timeout, id);
    }

    /// The connection is gone, with everything that is known of it.
    pub(super) fn remove(&mut self, common: &mut Common, on: Trigger, id: u32) {
        common.release_id(id);
        common.note_record(id);
        let Some(Connection { state, path, .. }) = self.conns.remove(&id) else { return };
        let from = state.name();
        debug_assert!(is_edge(Some(from), on, None), "{from:?} / {on:?} > gone");
        if let ConnState::ReqRcvd(received) = &state {
            common.listeners.leave_backlog(received.listener);
        }
        if let Some(remote) = state.remote() {
            let peer = path.peer();
            forget(&mut self.by_remote_id, &(peer, remote.guid, remote.id), id);
            forget(&mut self.by_remote_qpn, &(peer, remote.guid, remote.qpn), id);
        }
    }
}

/// Removes an entry if it is that of `id`.
fn forget<K: Ord>(map: &mut BTreeMap<K, u32>, key: &K, id: u32) {
    if map.get(key) == Some(&id) {
        map.remove(key);
    }
}
