//! The passive side of setting a connection up: request, reply, ready to use.

use alloc::boxed::Box;

use super::{
    arrival::Arrival,
    command::{Accept, ConnId, ListenerId},
    common::Common,
    connection::{Accepted, ConnState, Connection, Received, Remote, Terms},
    connections::Connections,
    credit::Credit,
    error::{ConnAttribute, ConnError, check_limits, private_data},
    event::ConnEvent,
    message::{About, Message, PrivateData, Rej, RejectReason, Rep, Req, Rtu},
    reason::MadReason,
    state::Trigger,
};
use crate::{
    addr::{AddressVector, Gid, Mtu},
    event::DropReason,
    ids::Qpn,
    time::{Instant, timeout},
};

/// Time that an own queue pair may take to acknowledge, as replies say: 4.096 µs · 2^15, 134 ms, as
/// rxe has it.
const TARGET_ACK_DELAY: u8 = 15;

impl Connections {
    pub(super) fn on_req(
        &mut self,
        common: &mut Common,
        req: &Req,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        let (peer, guid) = (arrival.peer(), req.local_ca_guid);
        if let Some(&id) = self.by_remote_id.get(&(peer, guid, req.local_id)) {
            return self.on_repeated_req(common, id, req, arrival);
        }
        // A queue pair that is connected cannot request another connection. If its owner has
        // started again, the old connection is stale.
        if let Some(&id) = self.by_remote_qpn.get(&(peer, guid, req.local_qpn)) {
            refuse(common, arrival, rejection(req, RejectReason::STALE_CONNECTION, &[]));
            self.probe(common, arrival, id);
            return Ok(());
        }
        match listener_for(common, req, arrival) {
            Ok(_) if common.faults.as_mut().is_some_and(|faults| faults.rejects()) => {
                refuse(common, arrival, rejection(req, RejectReason::CONSUMER, &[]));
                Ok(())
            }
            Ok(listener) => self.admit(common, req, listener, arrival),
            Err(rej) => {
                refuse(common, arrival, rej);
                Ok(())
            }
        }
    }

    fn on_repeated_req(
        &self,
        common: &mut Common,
        id: u32,
        req: &Req,
        arrival: &Arrival<'_>,
    ) -> Result<(), DropReason> {
        let conn = self.conns.get(&id).ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(&conn.path)?;
        match &conn.state {
            // the program has not answered yet
            ConnState::ReqRcvd(_) => self.send_mra(common, id, About::Req),
            // the reply was lost, or has crossed this
            ConnState::RepSent(accepted) | ConnState::MraRepRcvd(accepted) => {
                common.enqueue(conn.path, accepted.resend.mad.clone(), MadReason::Repeated);
            }
            ConnState::TimeWait(_) => {
                refuse(common, arrival, rejection(req, RejectReason::STALE_CONNECTION, &[]));
            }
            _ => return Err(DropReason::CmWrongState),
        }
        Ok(())
    }

    /// Takes in a request, if there is room: a listener's backlog and all connections are limited.
    fn admit(
        &mut self,
        common: &mut Common,
        req: &Req,
        listener: ListenerId,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        let id = common.admit(listener, arrival)?;
        let (peer, local) = (arrival.peer(), arrival.own());
        let remote = Remote { id: req.local_id, guid: req.local_ca_guid, qpn: req.local_qpn };
        let av = AddressVector {
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            ..AddressVector::new(peer.into(), arrival.sgid_index)
        };
        let received = Received {
            remote,
            listener,
            terms: Box::new(Terms {
                req: *req,
                av,
                ack_timeout: req.primary.ack_timeout,
                min_rnr_timer: 0,
            }),
            rep: Box::default(),
        };
        let conn = Connection {
            state: ConnState::ReqRcvd(received),
            path: arrival.path,
            local_qpn: Qpn::default(),
            transaction: arrival.transaction,
            credit: Credit::new(common.config.unproven_messages),
            abandoned: false,
            probe: None,
            setup: None,
            time_wait: timeout(req.primary.ack_timeout),
        };
        self.conns.insert(id, conn);
        self.index(id, peer, &remote);
        let req = Box::new(*req);
        self.emit(common, id, |conn| ConnEvent::Request {
            listener,
            conn,
            req,
            remote: peer,
            local,
        });
        Ok(())
    }

    /// Notes what the program answers to a request, so that `qp_setup`
    /// knows.
    pub(super) fn prepare(
        &mut self,
        common: &Common,
        id: ConnId,
        accept: &Accept<'_>,
    ) -> Result<(), ConnError> {
        let conn = self.get_mut(id)?;
        let ConnState::ReqRcvd(Received { remote, terms, rep, .. }) = &mut conn.state else {
            return Err(ConnError::State(conn.state.name()));
        };
        let private_data = private_data(accept.private_data)?;
        check_limits(&[
            (ConnAttribute::RnrRetry, accept.end.rnr_retry, 7),
            (ConnAttribute::MinRnrTimer, accept.end.min_rnr_timer, 31),
        ])?;
        terms.min_rnr_timer = accept.end.min_rnr_timer;
        **rep = Rep {
            local_id: id.0,
            remote_id: remote.id,
            local_qpn: accept.end.qpn,
            starting_psn: accept.end.starting_psn,
            responder_resources: accept.end.responder_resources,
            initiator_depth: accept.end.initiator_depth,
            target_ack_delay: TARGET_ACK_DELAY,
            failover: if terms.req.alternate.local_lid == 0 { 0 } else { Rep::NO_FAILOVER },
            rnr_retry: accept.end.rnr_retry,
            srq: accept.end.srq,
            local_ca_guid: common.guid,
            private_data,
            ..Rep::default()
        };
        conn.local_qpn = accept.end.qpn;
        Ok(())
    }

    /// Sends what was [prepared](Self::prepare). `managed` if the adapter has moved the queue pair.
    pub(super) fn accept(&mut self, common: &mut Common, now: Instant, id: ConnId, managed: bool) {
        let Ok(conn) = self.get_mut(id) else { return };
        let ConnState::ReqRcvd(Received { rep, listener, .. }) = &conn.state else { return };
        common.listeners.leave_backlog(*listener);
        let mad = conn.mad(Message::Rep(rep.clone()));
        let may_send = conn.credit.take();
        let resend = common.send_until_answered(now, id.0, conn.path, mad, may_send);
        conn.advance(Trigger::Accept, |state| match state {
            ConnState::ReqRcvd(Received { remote, terms, rep, .. }) => {
                ConnState::RepSent(Accepted { remote, terms, rep, managed, resend })
            }
            other => other,
        });
        common.note_record(id.0);
    }

    pub(super) fn on_rtu(
        &mut self,
        common: &mut Common,
        rtu: &Rtu,
        arrival: &Arrival<'_>,
    ) -> Result<(), DropReason> {
        let conn = self.find(rtu.remote_id, rtu.local_id, arrival)?;
        if !conn.state.name().expects(Trigger::Rtu) {
            return Err(DropReason::CmWrongState);
        }
        self.confirm(common, Trigger::Rtu, rtu.remote_id, Some(Box::new(rtu.private_data)));
        Ok(())
    }

    /// A packet of the peer's queue pair came, so its RTU was lost or is late (`rdma_notify`).
    pub(super) fn notify(&mut self, common: &mut Common, id: ConnId) -> Result<(), ConnError> {
        match self.get_mut(id)?.state {
            ConnState::RepSent(_) | ConnState::MraRepRcvd(_) => {
                self.confirm(common, Trigger::Notify, id.0, None);
                Ok(())
            }
            ConnState::Established(_) => Ok(()),
            ref state => Err(ConnError::State(state.name())),
        }
    }

    /// The peer has the reply: both sides may use the connection.
    pub(super) fn confirm(
        &mut self,
        common: &mut Common,
        on: Trigger,
        id: u32,
        private_data: Option<Box<PrivateData<{ Rtu::PRIVATE_DATA }>>>,
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let remote = conn.state.remote().copied().unwrap_or_default();
        if matches!(
            conn.state,
            ConnState::RepSent(Accepted { managed: false, .. })
                | ConnState::MraRepRcvd(Accepted { managed: false, .. })
        ) {
            conn.setup = conn.qp_setup().map(Box::new);
        }
        conn.advance(on, |_| ConnState::Established(remote));
        conn.credit = Credit::PROVEN;
        common.deadlines.clear(id);
        self.emit(common, id, |conn| ConnEvent::Established { conn, rep: None, private_data });
    }
}

/// The listener for a request that can be served.
fn listener_for(common: &Common, req: &Req, arrival: &Arrival<'_>) -> Result<ListenerId, Box<Rej>> {
    let listener = common.listeners.find(req.service_id, arrival.own());
    let listener = listener.ok_or_else(|| rejection(req, RejectReason::INVALID_SERVICE_ID, &[]))?;
    // a partition that the port is not in has no reason of its own; Linux gives this one
    let own = Gid::from(arrival.own());
    if req.primary.remote_gid != own || arrival.pkeys.find(req.pkey).is_none() {
        return Err(rejection(req, RejectReason::INVALID_GID, &own.0));
    }
    let mtu = Mtu::ALL.into_iter().find(|&mtu| mtu as u8 == req.path_mtu);
    if mtu.is_none_or(|mtu| mtu > arrival.port_mtu) {
        return Err(rejection(req, RejectReason::INVALID_MTU, &[arrival.port_mtu as u8]));
    }
    Ok(listener)
}

/// A rejection of a request that never becomes a connection.
fn rejection(req: &Req, reason: RejectReason, info: &[u8]) -> Box<Rej> {
    Box::new(Rej::new(0, req.local_id, About::Req, reason).with_info(info))
}

fn refuse(common: &mut Common, arrival: &Arrival<'_>, rej: Box<Rej>) {
    common.answer(arrival, Message::Rej(rej));
}
