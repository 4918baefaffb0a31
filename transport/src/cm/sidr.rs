//! Service ID resolution (12.11).

use alloc::boxed::Box;

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    arrival::{Arrival, CmPath},
    command::ConnId,
    connection::Connection,
    connections::{Connections, commanded},
    error::{ConnError, private_data},
    event::ConnEvent,
    message::{CmMad, Message, SidrRep, SidrReq},
    resend::MadReason,
    service::ServiceId,
    state::{CmState, Trigger},
};
use crate::{addr::QKey, event::DropReason, ids::Qpn, time::Instant};

impl Connections {
    pub(crate) fn sidr_request(
        &mut self,
        now: Instant,
        service_id: ServiceId,
        bytes: &[u8],
        path: CmPath,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        let private_data = private_data(bytes)?;
        let request_id = self.common.take_id(rng)?;
        let req = SidrReq { request_id, pkey: path.pkey, service_id, private_data };
        let transaction = rng.next_u64();
        let mad = CmMad::new(transaction, Message::SidrReq(req));
        let resend = Some(self.common.send_until_response(now, request_id, path, mad, true));
        let conn =
            Connection { resend, ..Connection::new(CmState::SidrReqSent, path, transaction) };
        self.conns.insert(request_id, conn);
        Ok(ConnId(request_id))
    }

    pub(crate) fn sidr_respond(
        &mut self,
        id: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        bytes: &[u8],
    ) -> Result<(), ConnError> {
        let conn = commanded(&mut self.conns, id, Trigger::SidrRespond)?;
        let Some((request_id, service_id)) = conn.request else {
            return Err(ConnError::State(conn.state));
        };
        let private_data = private_data(bytes)?;
        let (status, qpn, qkey) = match receiver {
            Ok((qpn, qkey)) => (0, qpn, qkey),
            Err(status) => (status, Qpn::default(), QKey::default()),
        };
        let rep = SidrRep {
            request_id,
            status,
            qpn,
            service_id,
            qkey,
            private_data,
            ..SidrRep::default()
        };
        self.common.send(MadReason::First, conn.path, conn.transaction, Message::SidrRep(rep));
        self.remove(Trigger::SidrRespond, id.0);
        Ok(())
    }

    pub(super) fn on_sidr_req(
        &mut self,
        req: &SidrReq,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        let &SidrReq { request_id, service_id, .. } = req;
        let (remote, local) = (arrival.path.peer(), arrival.path.own());
        let Some(listener) = self.common.listeners.find(service_id, local) else {
            let status = SidrRep::NO_SERVICE;
            let rep = SidrRep { request_id, status, service_id, ..SidrRep::default() };
            self.common.response(arrival, Message::SidrRep(rep));
            return Ok(());
        };
        // retransmitted
        if self.resolutions.contains(&(remote, request_id)) {
            return Err(DropReason::CmWrongState);
        }
        let id = self.common.admit(listener, arrival)?;
        let conn = Connection {
            listener: Some(listener),
            request: Some((request_id, service_id)),
            ..Connection::new(CmState::SidrReqRcvd, arrival.path, arrival.transaction)
        };
        self.conns.insert(id, conn);
        self.resolutions.insert((remote, request_id));
        let req = Box::new(*req);
        self.common.emit(id, |conn| ConnEvent::SidrRequest { listener, conn, req, remote, local });
        Ok(())
    }

    pub(super) fn on_sidr_rep(
        &mut self,
        rep: &SidrRep,
        arrival: &Arrival<'_>,
    ) -> Result<(), DropReason> {
        let id = rep.request_id;
        let conn = self.conns.get_mut(&id).filter(|conn| conn.is_resolution());
        let conn = conn.ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(&conn.path)?;
        let Some(resend) = &mut conn.resend else { return Err(DropReason::CmWrongState) };
        if rep.status == SidrRep::NO_SERVICE && self.common.retry_later(arrival.now, id, resend) {
            return Ok(());
        }
        self.common.emit(id, |conn| ConnEvent::SidrReply { conn, rep: Box::new(*rep) });
        self.remove(Trigger::SidrRep, id);
        Ok(())
    }
}
