//! Service ID resolution (12.11).

use alloc::{boxed::Box, collections::BTreeMap};
use core::net::IpAddr;

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    arrival::Arrival,
    command::{ConnId, ListenerId},
    common::Common,
    error::{ConnError, private_data},
    event::ConnEvent,
    message::{CmMad, Message, SidrRep, SidrReq},
    path::CmPath,
    reason::MadReason,
    resend::Resend,
    service::ServiceId,
    state::{CmState, Trigger, is_edge},
};
use crate::{addr::QKey, event::DropReason, hash::IdHasher, ids::Qpn, time::Instant};

#[derive(Default)]
pub(super) struct Sidr {
    resolutions: HashMap<u32, Resolution, IdHasher>,
    /// By address and request ID.
    by_remote_id: BTreeMap<(IpAddr, u32), u32>,
}

struct Resolution {
    state: SidrState,
    path: CmPath,
}

enum SidrState {
    ReqSent(Resend),
    ReqRcvd { request_id: u32, service_id: ServiceId, transaction: u64, listener: ListenerId },
}

impl SidrState {
    const fn name(&self) -> CmState {
        match self {
            Self::ReqSent(_) => CmState::SidrReqSent,
            Self::ReqRcvd { .. } => CmState::SidrReqRcvd,
        }
    }
}

impl Sidr {
    pub(super) fn state(&self, id: ConnId) -> Option<CmState> {
        self.resolutions.get(&id.0).map(|resolution| resolution.state.name())
    }

    pub(super) fn request(
        &mut self,
        common: &mut Common,
        now: Instant,
        service_id: ServiceId,
        bytes: &[u8],
        path: CmPath,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        let private_data = private_data(bytes)?;
        let request_id = common.take_id(rng)?;
        let req = SidrReq { request_id, pkey: path.pkey, service_id, private_data };
        let mad = CmMad::new(rng.next_u64(), Message::SidrReq(req));
        let resend = common.send_until_response(now, request_id, path, mad, true);
        let state = SidrState::ReqSent(resend);
        self.resolutions.insert(request_id, Resolution { state, path });
        Ok(ConnId(request_id))
    }

    pub(super) fn respond(
        &mut self,
        common: &mut Common,
        id: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        bytes: &[u8],
    ) -> Result<(), ConnError> {
        let Resolution { state, path } = self.resolutions.get(&id.0).ok_or(ConnError::Unknown)?;
        let &SidrState::ReqRcvd { request_id, service_id, transaction, .. } = state else {
            return Err(ConnError::State(state.name()));
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
        common.send(MadReason::First, *path, transaction, Message::SidrRep(rep));
        self.remove(common, Trigger::SidrRespond, id.0);
        Ok(())
    }

    pub(super) fn destroy(&mut self, common: &mut Common, id: ConnId) {
        match self.state(id) {
            Some(CmState::SidrReqRcvd) => {
                let _ = self.respond(common, id, Err(SidrRep::REJECTED), &[]); // allowed here
            }
            Some(_) => self.remove(common, Trigger::Destroy, id.0),
            None => {}
        }
    }

    pub(super) fn on_req(
        &mut self,
        common: &mut Common,
        req: &SidrReq,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        let &SidrReq { request_id, service_id, .. } = req;
        let Some(listener) = common.listeners.find(service_id, arrival.path.own()) else {
            let status = SidrRep::NO_SERVICE;
            let rep = SidrRep { request_id, status, service_id, ..SidrRep::default() };
            common.response(arrival, Message::SidrRep(rep));
            return Ok(());
        };
        // retransmitted
        let key = (arrival.path.peer(), request_id);
        if self.by_remote_id.contains_key(&key) {
            return Err(DropReason::CmWrongState);
        }
        let id = common.admit(listener, arrival)?;
        let transaction = arrival.transaction;
        let state = SidrState::ReqRcvd { request_id, service_id, transaction, listener };
        self.resolutions.insert(id, Resolution { state, path: arrival.path });
        self.by_remote_id.insert(key, id);
        let (remote, local, req) = (arrival.path.peer(), arrival.path.own(), Box::new(*req));
        common.emit(id, |conn| ConnEvent::SidrRequest { listener, conn, req, remote, local });
        Ok(())
    }

    pub(super) fn on_rep(
        &mut self,
        common: &mut Common,
        rep: &SidrRep,
        arrival: &Arrival<'_>,
    ) -> Result<(), DropReason> {
        let id = rep.request_id;
        let resolution = self.resolutions.get_mut(&id).ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(&resolution.path)?;
        let SidrState::ReqSent(resend) = &mut resolution.state else {
            return Err(DropReason::CmWrongState);
        };
        if rep.status == SidrRep::NO_SERVICE && common.retry_later(arrival.now, id, resend) {
            return Ok(());
        }
        common.emit(id, |conn| ConnEvent::SidrReply { conn, rep: Box::new(*rep) });
        self.remove(common, Trigger::SidrRep, id);
        Ok(())
    }

    pub(super) fn on_deadline(&mut self, common: &mut Common, now: Instant, id: u32) {
        let Some(Resolution { state, path }) = self.resolutions.get_mut(&id) else { return };
        if let SidrState::ReqSent(resend) = state
            && common.resend(now, id, *path, resend, || true)
        {
            return;
        }
        common.emit(id, |conn| ConnEvent::Unreachable { conn });
        self.remove(common, Trigger::Timeout, id);
    }

    fn remove(&mut self, common: &mut Common, on: Trigger, id: u32) {
        common.release_id(id);
        let Some(Resolution { state, path }) = self.resolutions.remove(&id) else { return };
        debug_assert!(is_edge(Some(state.name()), on, None), "{:?} / {on:?} > gone", state.name());
        if let SidrState::ReqRcvd { request_id, listener, .. } = state {
            common.listeners.leave_backlog(listener);
            self.by_remote_id.remove(&(path.peer(), request_id));
        }
    }
}
