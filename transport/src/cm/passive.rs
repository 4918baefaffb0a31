use alloc::boxed::Box;

use super::{
    arrival::Arrival,
    command::{Accept, ConnId, ListenerId},
    common::Common,
    connection::{Connection, Remote},
    connections::{Connections, commanded, find},
    credit::Credit,
    error::{ConnAttribute, ConnError, check_limits, private_data},
    event::ConnEvent,
    message::{About, Message, PrivateData, Rej, RejectReason, Rep, Req, Rtu},
    qp_setup::Terms,
    resend::MadReason,
    state::{CmState, Trigger},
};
use crate::{
    addr::{AddressVector, Gid, Mtu},
    event::DropReason,
    time::{Instant, timeout},
};

/// 134 ms, as in rxe.
const TARGET_ACK_DELAY: u8 = 15;

impl Connections {
    pub(super) fn on_req(
        &mut self,
        req: &Req,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        let (peer, guid) = (arrival.path.peer(), req.local_ca_guid);
        if let Some(&id) = self.by_remote_id.get(&(peer, guid, req.local_id)) {
            return self.on_repeated_req(id, req, arrival);
        }
        // a connected queue pair cannot connect again; after a restart the old connection is stale
        if let Some(&id) = self.by_remote_qpn.get(&(peer, guid, req.local_qpn)) {
            let rej = rejection(req, RejectReason::STALE_CONNECTION, &[]);
            self.common.response(arrival, Message::Rej(rej));
            self.probe(arrival, id);
            return Ok(());
        }
        let rej = match listener_for(&self.common, req, arrival) {
            Ok(_) if self.common.faults.as_mut().is_some_and(|faults| faults.rejects()) => {
                rejection(req, RejectReason::CONSUMER, &[])
            }
            Ok(listener) => return self.admit(req, listener, arrival),
            Err(rej) => rej,
        };
        self.common.response(arrival, Message::Rej(rej));
        Ok(())
    }

    fn on_repeated_req(
        &mut self,
        id: u32,
        req: &Req,
        arrival: &Arrival<'_>,
    ) -> Result<(), DropReason> {
        let conn = self.conns.get(&id).ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(&conn.path)?;
        match (conn.state, &conn.resend) {
            (CmState::ReqRcvd, _) => self.send_mra(id, About::Req),
            // the REP was lost or crossed the REQ
            (CmState::RepSent | CmState::MraRepRcvd, Some(resend)) => {
                self.common.enqueue(conn.path, resend.mad.clone(), MadReason::Repeated);
            }
            (CmState::TimeWait, _) => {
                let rej = rejection(req, RejectReason::STALE_CONNECTION, &[]);
                self.common.response(arrival, Message::Rej(rej));
            }
            _ => return Err(DropReason::CmWrongState),
        }
        Ok(())
    }

    fn admit(
        &mut self,
        req: &Req,
        listener: ListenerId,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        let id = self.common.admit(listener, arrival)?;
        let (peer, local) = (arrival.path.peer(), arrival.path.own());
        let remote = Remote { id: req.local_id, guid: req.local_ca_guid, qpn: req.local_qpn };
        let av = AddressVector {
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            ..AddressVector::new(peer.into(), arrival.sgid_index)
        };
        let terms = Terms {
            req: *req,
            rep: Rep::default(),
            av,
            ack_timeout: req.primary.ack_timeout,
            min_rnr_timer: 0,
            managed: false,
            fits_ack_delay: false,
        };
        let conn = Connection {
            remote: Some(remote),
            terms: Some(Box::new(terms)),
            listener: Some(listener),
            credit: Credit::new(self.common.config.unproven_messages),
            time_wait: timeout(req.primary.ack_timeout),
            ..Connection::new(CmState::ReqRcvd, arrival.path, arrival.transaction)
        };
        self.conns.insert(id, conn);
        self.index(id, peer, &remote);
        let req = Box::new(*req);
        self.emit(id, |conn| ConnEvent::Request { listener, conn, req, remote: peer, local });
        Ok(())
    }

    /// Prepares the REP, for `qp_setup`.
    pub(crate) fn prepare(&mut self, id: ConnId, accept: &Accept<'_>) -> Result<(), ConnError> {
        let conn = commanded(&mut self.conns, id, Trigger::Accept)?;
        let remote_id = conn.remote_id();
        let Some(terms) = &mut conn.terms else { return Err(ConnError::State(conn.state)) };
        let private_data = private_data(accept.private_data)?;
        check_limits(&[
            (ConnAttribute::RnrRetry, accept.end.rnr_retry, 7),
            (ConnAttribute::MinRnrTimer, accept.end.min_rnr_timer, 31),
        ])?;
        terms.min_rnr_timer = accept.end.min_rnr_timer;
        terms.rep = Rep {
            local_id: id.0,
            remote_id,
            local_qpn: accept.end.qpn,
            starting_psn: accept.end.starting_psn,
            responder_resources: accept.end.responder_resources,
            initiator_depth: accept.end.initiator_depth,
            target_ack_delay: TARGET_ACK_DELAY,
            failover: if terms.req.alternate.local_lid == 0 { 0 } else { Rep::NO_FAILOVER },
            rnr_retry: accept.end.rnr_retry,
            srq: accept.end.srq,
            local_ca_guid: self.common.guid,
            private_data,
            ..Rep::default()
        };
        conn.local_qpn = accept.end.qpn;
        Ok(())
    }

    /// Sends the [prepared](Self::prepare) REP.
    pub(crate) fn accept(&mut self, now: Instant, id: ConnId, managed: bool) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        let (CmState::ReqRcvd, Some(terms)) = (conn.state, &mut conn.terms) else { return };
        terms.managed = managed;
        let rep = Box::new(terms.rep);
        if let Some(listener) = conn.listener.take() {
            self.common.listeners.leave_backlog(listener);
        }
        let mad = conn.mad(Message::Rep(rep));
        let may_send = conn.credit.take();
        let resend = self.common.send_until_response(now, id.0, conn.path, mad, may_send);
        conn.advance(Trigger::Accept, CmState::RepSent);
        conn.resend = Some(resend);
        self.common.record_changed(id.0);
    }

    pub(super) fn on_rtu(&mut self, rtu: &Rtu, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let conn = find(&mut self.conns, rtu.remote_id, Some(rtu.local_id), arrival)?;
        conn.check(Trigger::Rtu)?;
        self.confirm(Trigger::Rtu, rtu.remote_id, Some(Box::new(rtu.private_data)));
        Ok(())
    }

    /// Reports a packet before the RTU (`rdma_notify`).
    ///
    /// # Errors
    /// [`ConnError::State`], [`ConnError::Unknown`].
    pub fn notify(&mut self, id: ConnId) -> Result<(), ConnError> {
        let conn = commanded(&mut self.conns, id, Trigger::Notify)?;
        if conn.state != CmState::Established {
            self.confirm(Trigger::Notify, id.0, None);
        }
        Ok(())
    }

    pub(super) fn confirm(
        &mut self,
        on: Trigger,
        id: u32,
        private_data: Option<Box<PrivateData<{ Rtu::PRIVATE_DATA }>>>,
    ) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.terms.as_ref().is_some_and(|terms| !terms.managed) {
            conn.setup = conn.qp_setup().map(Box::new);
        }
        conn.advance(on, CmState::Established);
        conn.credit = Credit::PROVEN;
        self.common.deadlines.clear(id);
        self.emit(id, |conn| ConnEvent::Established { conn, rep: None, private_data });
    }
}

fn listener_for(common: &Common, req: &Req, arrival: &Arrival<'_>) -> Result<ListenerId, Box<Rej>> {
    let listener = common.listeners.find(req.service_id, arrival.path.own());
    let listener = listener.ok_or_else(|| rejection(req, RejectReason::INVALID_SERVICE_ID, &[]))?;
    // a missing partition has no reason code; Linux sends this one
    let own = Gid::from(arrival.path.own());
    if req.primary.remote_gid != own || arrival.pkeys.find(req.pkey).is_none() {
        return Err(rejection(req, RejectReason::INVALID_GID, &own.0));
    }
    if Mtu::from_code(req.path_mtu).is_none_or(|mtu| mtu > arrival.port_mtu) {
        return Err(rejection(req, RejectReason::INVALID_MTU, &[arrival.port_mtu as u8]));
    }
    Ok(listener)
}

fn rejection(req: &Req, reason: RejectReason, info: &[u8]) -> Box<Rej> {
    Box::new(Rej::new(0, req.local_id, About::Req, reason).with_info(info))
}
