use alloc::boxed::Box;

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    arrival::{Arrival, CmPath},
    command::{CmService, ConnId, Connect},
    common::Common,
    config::MAX_ACK_DELAY,
    connection::{Connection, Remote},
    connections::{Connections, ReplyOutcome, commanded, find},
    error::{ConnAttribute, ConnError, check_limits, private_data},
    event::ConnEvent,
    message::{About, CmMad, Message, PrivateData, Rej, RejectReason, Rep, Req, ReqPath, Rtu},
    qp_setup::Terms,
    resend::MadReason,
    state::{CmState, Trigger},
};
use crate::{
    event::DropReason,
    gids::Path,
    time::{Instant, timeout},
};

impl Connections {
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
        path: Path,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        let private_data = private_data(connect.private_data)?;
        check_limits(&[
            (ConnAttribute::RetryCount, connect.retry_count, 7),
            (ConnAttribute::RnrRetry, connect.end.rnr_retry, 7),
            (ConnAttribute::MinRnrTimer, connect.end.min_rnr_timer, 31),
            (ConnAttribute::AckTimeout, connect.ack_timeout, 31),
        ])?;
        let local_id = self.common.take_id(rng)?;
        let req = Req { local_id, private_data, ..request(&self.common, connect, &path) };
        let (path, transaction) = (CmPath { path, pkey: connect.pkey }, rng.next_u64());
        let mad = CmMad::new(transaction, Message::Req(Box::new(req)));
        let terms = Terms {
            req,
            rep: Rep::default(),
            av: connect.av,
            ack_timeout: connect.ack_timeout,
            min_rnr_timer: connect.end.min_rnr_timer,
            managed: connect.managed,
            fits_ack_delay: connect.fits_ack_delay,
        };
        let conn = Connection {
            local_qpn: connect.end.qpn,
            terms: Some(Box::new(terms)),
            resend: Some(self.common.send_until_response(now, local_id, path, mad, true)),
            time_wait: timeout(connect.ack_timeout),
            ..Connection::new(CmState::ReqSent, path, transaction)
        };
        self.conns.insert(local_id, conn);
        Ok(ConnId(local_id))
    }

    pub(super) fn on_rep(
        &mut self,
        rep: &Rep,
        arrival: &mut Arrival<'_>,
    ) -> Result<ReplyOutcome, DropReason> {
        let id = rep.remote_id;
        let is_own = self.common.config.ids.contains(&id);
        let conn = match find(&mut self.conns, id, None, arrival) {
            Ok(conn) => conn,
            // given up; the peer still waits
            Err(DropReason::CmUnknownConnection) if is_own => {
                let reason = RejectReason::INVALID_COMM_ID;
                let rej = Rej::new(id, rep.local_id, About::Rep, reason);
                self.common.response(arrival, Message::Rej(Box::new(rej)));
                return Ok(ReplyOutcome::Handled);
            }
            Err(reason) => return Err(reason),
        };
        conn.check(Trigger::Rep)?;
        if !matches!(conn.state, CmState::ReqSent | CmState::MraReqRcvd) {
            return self.on_repeated_rep(rep);
        }
        let remote = Remote { id: rep.local_id, guid: rep.local_ca_guid, qpn: rep.local_qpn };
        // another local queue pair is connected to the peer's
        let key = (arrival.path.peer(), remote.guid, remote.qpn);
        if let Some(&other) = self.by_remote_qpn.get(&key).filter(|&&other| other != id) {
            self.refuse_rep(rep, other, arrival);
            return Ok(ReplyOutcome::Handled);
        }
        self.common.deadlines.clear(id);
        let conn = find(&mut self.conns, id, None, arrival)?;
        let Some(terms) = &mut conn.terms else { return Err(DropReason::CmWrongState) };
        terms.rep = *rep;
        if terms.fits_ack_delay {
            terms.ack_timeout = with_ack_delay(terms.ack_timeout, rep.target_ack_delay);
            conn.time_wait = timeout(terms.ack_timeout);
        }
        let managed = terms.managed;
        conn.remote = Some(remote);
        conn.advance(Trigger::Rep, CmState::RepRcvd);
        self.index(id, arrival.path.peer(), &remote);
        self.common.record_changed(id);
        if managed {
            return Ok(ReplyOutcome::MoveQueuePair(ConnId(id)));
        }
        self.emit(id, |conn| ConnEvent::Reply { conn, rep: Box::new(*rep) });
        Ok(ReplyOutcome::Handled)
    }

    fn on_repeated_rep(&mut self, rep: &Rep) -> Result<ReplyOutcome, DropReason> {
        let id = rep.remote_id;
        let conn = self.conns.get(&id).filter(|conn| conn.remote_id() == rep.local_id);
        let conn = conn.ok_or(DropReason::CmWrongState)?;
        if conn.state == CmState::RepRcvd {
            self.send_mra(id, About::Rep);
        } else {
            send_rtu(&mut self.common, id, conn, PrivateData::default(), MadReason::Repeated);
        }
        Ok(ReplyOutcome::Handled)
    }

    /// Rejects a REP of another connection's queue pair.
    fn refuse_rep(&mut self, rep: &Rep, other: u32, arrival: &mut Arrival<'_>) {
        let id = rep.remote_id;
        let rej = Rej::new(id, rep.local_id, About::Rep, RejectReason::STALE_CONNECTION);
        self.common.response(arrival, Message::Rej(Box::new(rej)));
        self.probe(arrival, other);
        self.emit(id, |conn| ConnEvent::Rejected { conn, rej: Box::new(rej) });
        self.remove(Trigger::Rep, id);
    }

    pub(crate) fn establish(&mut self, id: ConnId, bytes: &[u8]) -> Result<(), ConnError> {
        let conn = commanded(&mut self.conns, id, Trigger::Establish)?;
        let private_data = private_data(bytes)?;
        conn.advance(Trigger::Establish, CmState::Established);
        send_rtu(&mut self.common, id.0, conn, private_data, MadReason::First);
        Ok(())
    }

    /// Sends the RTU after the adapter moved the queue pair.
    pub(crate) fn complete(&mut self, id: ConnId) {
        let terms = self.conns.get(&id.0).and_then(|conn| conn.terms.as_ref());
        let rep = terms.map(|terms| Box::new(terms.rep));
        if self.establish(id, &[]).is_ok() {
            self.emit(id.0, |conn| ConnEvent::Established { conn, rep, private_data: None });
        }
    }

    /// Rejects: the queue pair could not follow.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnId) {
        if self.reject(now, id, RejectReason::CONSUMER, &[]).is_ok() {
            self.emit(id.0, ConnEvent::ConnectError);
            if let Some(conn) = self.conns.get_mut(&id.0) {
                conn.abandoned = true;
            }
        }
    }
}

/// Returns a timeout with the peer's ACK delay (12.7.34): the longer, plus one if both differ by at
/// most one, as in Linux. 0 (never) stays.
fn with_ack_delay(ack_timeout: u8, delay: u8) -> u8 {
    let delay = delay.min(MAX_ACK_DELAY);
    let longer = ack_timeout.max(delay);
    let rounds_up = ack_timeout.abs_diff(delay) <= 1;
    if ack_timeout == 0 { 0 } else { (longer + u8::from(rounds_up)).min(31) }
}

fn request(common: &Common, connect: &Connect<'_>, path: &Path) -> Req {
    let (transport, extended_transport) = match connect.service {
        CmService::Rc => (0, 0),
        CmService::Uc => (1, 0),
        CmService::Xrc => (3, 1),
    };
    Req {
        service_id: connect.service_id,
        local_ca_guid: common.guid,
        local_qpn: connect.end.qpn,
        responder_resources: connect.end.responder_resources,
        initiator_depth: connect.end.initiator_depth,
        remote_response_timeout: common.config.response_timeout,
        transport,
        extended_transport,
        starting_psn: connect.end.starting_psn,
        local_response_timeout: common.config.response_timeout,
        retry_count: connect.retry_count,
        pkey: connect.pkey,
        path_mtu: connect.path_mtu as u8,
        rnr_retry: connect.end.rnr_retry,
        max_cm_retries: common.config.max_retries,
        srq: connect.end.srq,
        primary: ReqPath {
            local_lid: 0xFFFF,
            remote_lid: 0xFFFF,
            local_gid: path.net.src.into(),
            remote_gid: connect.av.dgid,
            flow_label: connect.av.flow_label & 0xF_FFFF,
            rate: 0,
            traffic_class: connect.av.traffic_class,
            hop_limit: if connect.av.hop_limit == 0 { 64 } else { connect.av.hop_limit },
            service_level: 0,
            subnet_local: false,
            ack_timeout: connect.ack_timeout,
        },
        ..Req::default()
    }
}

fn send_rtu(
    common: &mut Common,
    id: u32,
    conn: &Connection,
    private_data: PrivateData<{ Rtu::PRIVATE_DATA }>,
    reason: MadReason,
) {
    let rtu = Rtu { local_id: id, remote_id: conn.remote_id(), private_data };
    common.send(reason, conn.path, conn.transaction, Message::Rtu(rtu));
}
