use alloc::boxed::Box;

use super::{
    arrival::Arrival,
    command::ConnId,
    common::Common,
    connections::{Connections, commanded, find},
    error::{ConnError, private_data},
    event::ConnEvent,
    message::{About, Drep, Dreq, Message, PrivateData, Rej, RejectReason, SidrRep},
    resend::MadReason,
    state::{CmState, Trigger},
};
use crate::{event::DropReason, time::Instant};

impl Connections {
    pub(crate) fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        reason: RejectReason,
        bytes: &[u8],
    ) -> Result<(), ConnError> {
        let conn = commanded(&mut self.conns, id, Trigger::Reject)?;
        let about = if conn.state == CmState::ReqRcvd { About::Req } else { About::Rep };
        let private_data = private_data(bytes)?;
        let rej = Rej { private_data, ..Rej::new(id.0, conn.remote_id(), about, reason) };
        let rej = Message::Rej(Box::new(rej));
        self.common.send(MadReason::First, conn.path, conn.transaction, rej);
        if about == About::Rep {
            // the peer's queue pair may have sent
            self.enter_time_wait(Trigger::Reject, now, id.0);
        } else {
            self.remove(Trigger::Reject, id.0);
        }
        Ok(())
    }

    pub(super) fn on_rej(&mut self, rej: &Rej, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let id = self.rejected(rej, arrival)?;
        let conn = find(&mut self.conns, id, None, arrival)?;
        // before the REP the peer's ID is unknown; a REJ of a REQ may lack it
        if conn.remote.is_some_and(|remote| remote.id != rej.local_id) {
            return Err(DropReason::CmUnknownConnection);
        }
        conn.check(Trigger::Rej)?;
        if let (CmState::ReqSent, Some(resend)) = (conn.state, &mut conn.resend)
            && rej.reason == RejectReason::INVALID_SERVICE_ID
            && self.common.retry_later(arrival.now, id, resend)
        {
            return Ok(());
        }
        // after a REP, either queue pair may have sent
        let has_replied =
            !matches!(conn.state, CmState::ReqSent | CmState::MraReqRcvd | CmState::ReqRcvd);
        self.emit(id, |conn| ConnEvent::Rejected { conn, rej: Box::new(*rej) });
        if has_replied {
            self.enter_time_wait(Trigger::Rej, arrival.now, id);
        } else {
            self.remove(Trigger::Rej, id);
        }
        Ok(())
    }

    /// Falls back to the GUID if the peer lacks this communication ID.
    fn rejected(&self, rej: &Rej, arrival: &Arrival<'_>) -> Result<u32, DropReason> {
        if self.conns.get(&rej.remote_id).is_some_and(|conn| !conn.is_resolution()) {
            return Ok(rej.remote_id);
        }
        let by_guid = |guid| self.by_remote_id.get(&(arrival.path.peer(), guid, rej.local_id));
        rej.requester_guid().and_then(by_guid).copied().ok_or(DropReason::CmUnknownConnection)
    }

    /// Sends a DREQ, or a DREP after the peer's DREQ.
    pub(crate) fn disconnect(
        &mut self,
        now: Instant,
        id: ConnId,
        bytes: &[u8],
    ) -> Result<(), ConnError> {
        let conn = commanded(&mut self.conns, id, Trigger::Disconnect)?;
        let remote = conn.remote.unwrap_or_default();
        match conn.state {
            CmState::RepSent | CmState::MraRepRcvd | CmState::Established => {
                let private_data = private_data(bytes)?;
                let mad = conn.mad(Message::Dreq(Dreq {
                    local_id: id.0,
                    remote_id: remote.id,
                    remote_qpn: remote.qpn,
                    private_data,
                }));
                let may_send = conn.credit.take_last();
                let resend = self.common.send_until_response(now, id.0, conn.path, mad, may_send);
                conn.advance(Trigger::Disconnect, CmState::DreqSent);
                conn.resend = Some(resend);
                self.common.record_changed(id.0);
            }
            CmState::DreqRcvd => {
                let private_data = private_data(bytes)?;
                let drep = Drep { local_id: id.0, remote_id: remote.id, private_data };
                let drep = Message::Drep(drep);
                self.common.send(MadReason::First, conn.path, conn.transaction, drep);
                self.enter_time_wait(Trigger::Disconnect, now, id.0);
            }
            _ => {} // already disconnected
        }
        Ok(())
    }

    pub(super) fn on_dreq(&mut self, dreq: &Dreq, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let id = dreq.remote_id;
        let conn = match find(&mut self.conns, id, Some(dreq.local_id), arrival) {
            Ok(conn) => conn,
            // the peer still waits
            Err(DropReason::CmUnknownConnection) => {
                respond_to_dreq(&mut self.common, dreq, arrival);
                return Ok(());
            }
            Err(reason) => return Err(reason),
        };
        if conn.local_qpn != dreq.remote_qpn {
            return Err(DropReason::CmUnknownConnection);
        }
        match conn.state {
            CmState::RepSent | CmState::MraRepRcvd | CmState::Established => {
                conn.transaction = arrival.transaction;
            }
            // both sent a DREQ
            CmState::DreqSent | CmState::TimeWait => {
                respond_to_dreq(&mut self.common, dreq, arrival);
            }
            _ => return Err(DropReason::CmWrongState),
        }
        self.end_by_peer(arrival.now, ConnId(id));
        Ok(())
    }

    /// Ends a connection: the peer sent a DREQ or is gone.
    pub fn end_by_peer(&mut self, now: Instant, id: ConnId) {
        let ConnId(number) = id;
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        match conn.state {
            CmState::RepSent | CmState::MraRepRcvd | CmState::Established => {
                conn.advance(Trigger::Dreq, CmState::DreqRcvd);
                let abandoned = conn.abandoned;
                self.common.deadlines.clear(number);
                self.common.record_changed(number);
                self.emit(number, ConnEvent::Disconnected);
                if abandoned {
                    let _ = self.disconnect(now, id, &[]);
                }
            }
            CmState::DreqSent => {
                self.emit(number, ConnEvent::Disconnected);
                self.enter_time_wait(Trigger::Dreq, now, number);
            }
            _ => {}
        }
    }

    pub(super) fn on_drep(&mut self, drep: &Drep, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let conn = find(&mut self.conns, drep.remote_id, Some(drep.local_id), arrival)?;
        let is_asked = conn.probe.is_some_and(|probe| probe.transaction == arrival.transaction);
        let on = match conn.state {
            CmState::Established if is_asked => Trigger::Disowned,
            _ => Trigger::Drep,
        };
        conn.check(on)?;
        self.emit(drep.remote_id, ConnEvent::Disconnected);
        self.enter_time_wait(on, arrival.now, drep.remote_id);
        Ok(())
    }

    /// Ends a connection or resolution without events (`rdma_destroy_id`); a waiting peer gets a
    /// response.
    pub fn destroy(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        conn.abandoned = true;
        // cannot fail: allowed states, no private data
        let _ = match conn.state {
            CmState::ReqRcvd | CmState::RepRcvd => {
                self.reject(now, id, RejectReason::CONSUMER, &[])
            }
            CmState::ReqSent | CmState::MraReqRcvd => {
                self.give_up(id.0);
                self.remove(Trigger::Destroy, id.0);
                Ok(())
            }
            CmState::SidrReqRcvd => self.sidr_respond(id, Err(SidrRep::REJECTED), &[]),
            CmState::SidrReqSent => {
                self.remove(Trigger::Destroy, id.0);
                Ok(())
            }
            _ => self.disconnect(now, id, &[]),
        };
    }
}

fn respond_to_dreq(common: &mut Common, dreq: &Dreq, arrival: &Arrival<'_>) {
    let (local_id, remote_id) = (dreq.remote_id, dreq.local_id);
    let drep = Drep { local_id, remote_id, private_data: PrivateData::default() };
    common.response(arrival, Message::Drep(drep));
}
