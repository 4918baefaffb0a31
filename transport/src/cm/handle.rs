//! Messages that arrive.

use alloc::boxed::Box;
use core::net::IpAddr;

use rand_chacha::ChaCha12Rng;

use super::{
    Cm, CmEvent, CmPath, CmState, ConnId, Listener, ListenerId, Outgoing,
    connection::{Connection, Setup},
    message::{
        About, CmMad, Drep, Dreq, Message, Mra, PrivateData, Rej, RejectReason, Rep, Req, Rtu,
        SidrRep, SidrReq,
    },
    time_of,
};
use crate::{
    addr::{AddressVector, Gid, Mtu},
    event::DropReason,
    time::Instant,
};

/// Where a message came from, and what that means.
pub(crate) struct Arrival<'a> {
    pub(crate) now: Instant,
    /// The way back.
    pub(crate) way: CmPath,
    /// Index of the own address in the GID table.
    pub(crate) sgid_index: u16,
    /// The most payload that the link carries in a packet.
    pub(crate) port_mtu: Mtu,
    pub(crate) rng: &'a mut ChaCha12Rng,
}

impl Arrival<'_> {
    const fn peer(&self) -> IpAddr {
        self.way.peer()
    }

    const fn own(&self) -> IpAddr {
        self.way.own()
    }

    /// Only the peer may speak about a connection.
    fn check_peer(&self, conn: &Connection) -> Result<(), DropReason> {
        if conn.is_with(self.peer(), self.own()) { Ok(()) } else { Err(DropReason::CmWrongPeer) }
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// It changed something, or was answered.
    Done,
    /// The peer has accepted a connection whose queue pair the adapter is to move.
    Replied(ConnId),
}

type Handled = Result<Taken, DropReason>;

impl Cm {
    /// Takes a message that came to QP1.
    pub(crate) fn handle(&mut self, mad: &CmMad, arrival: &mut Arrival<'_>) -> Handled {
        match &mad.message {
            Message::Req(req) => self.on_req(req, mad.transaction, arrival),
            Message::Mra(mra) => self.on_mra(mra, arrival),
            Message::Rej(rej) => self.on_rej(rej, arrival),
            Message::Rep(rep) => self.on_rep(rep, mad.transaction, arrival),
            Message::Rtu(rtu) => self.on_rtu(rtu, arrival),
            Message::Dreq(dreq) => self.on_dreq(dreq, mad.transaction, arrival),
            Message::Drep(drep) => self.on_drep(drep, arrival),
            Message::SidrReq(req) => self.on_sidr_req(req, mad.transaction, arrival),
            Message::SidrRep(rep) => self.on_sidr_rep(rep, arrival),
        }
    }

    /// The connection that a message is about: both sides' names fit, and it comes from the
    /// connection's peer.
    fn find(&self, own: u32, peers: u32, arrival: &Arrival<'_>) -> Result<&Connection, DropReason> {
        let conn =
            self.conns.get(&own).filter(|conn| conn.remote_id == peers && !is_sidr(conn.state));
        let conn = conn.ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(conn)?;
        Ok(conn)
    }

    // Setting up.

    fn on_req(&mut self, req: &Req, transaction: u64, arrival: &mut Arrival<'_>) -> Handled {
        let (peer, guid) = (arrival.peer(), req.local_ca_guid);
        if let Some(&id) = self.by_remote_id.get(&(peer, guid, req.local_id)) {
            return self.on_repeated_req(id, req, transaction, arrival);
        }
        // A queue pair that is connected cannot ask for another connection: its owner has started
        // anew, and the old connection is stale (12.9.8.3.1).
        if let Some(&id) = self.by_remote_qpn.get(&(peer, guid, req.local_qpn)) {
            self.refuse(req, transaction, arrival, RejectReason::STALE_CONNECTION, &[]);
            // announces the end where there is one to announce
            let _ = self.disconnect(arrival.now, ConnId(id), &[]);
            return Ok(Taken::Done);
        }
        let mtu = Mtu::ALL
            .into_iter()
            .find(|&mtu| mtu as u8 == req.path_mtu)
            .filter(|&mtu| mtu <= arrival.port_mtu);
        let refusal = if req.primary.remote_gid != Gid::from(arrival.own()) {
            Some((RejectReason::INVALID_GID, &[][..]))
        } else if mtu.is_none() {
            Some((RejectReason::INVALID_MTU, &[arrival.port_mtu as u8][..]))
        } else {
            None
        };
        let listener = self.listener(req.service_id, arrival.own());
        let (Some(listener), None) = (listener, refusal) else {
            let (reason, info) = refusal
                .filter(|_| listener.is_some())
                .unwrap_or((RejectReason::INVALID_SERVICE_ID, &[]));
            self.refuse(req, transaction, arrival, reason, info);
            return Ok(Taken::Done);
        };
        let mut conn = Connection::new(CmState::ReqRcvd, arrival.way);
        conn.remote_id = req.local_id;
        conn.remote_guid = guid;
        conn.remote_qpn = req.local_qpn;
        conn.transaction = transaction;
        conn.time_wait = time_of(req.primary.ack_timeout);
        let av = AddressVector {
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            ..AddressVector::new(arrival.peer().into(), arrival.sgid_index)
        };
        conn.setup = Some(Box::new(Setup {
            req: *req,
            rep: Rep::default(),
            av,
            managed: false,
            min_rnr_timer: 0,
        }));
        let id = self.admit(listener, conn, arrival)?;
        self.by_remote_id.insert((peer, guid, req.local_id), id);
        self.by_remote_qpn.insert((peer, guid, req.local_qpn), id);
        let (remote, local) = (peer, arrival.own());
        self.emit(id, |conn| CmEvent::Request {
            listener,
            conn,
            req: Box::new(*req),
            remote,
            local,
        });
        Ok(Taken::Done)
    }

    fn on_repeated_req(
        &mut self,
        id: u32,
        req: &Req,
        transaction: u64,
        arrival: &mut Arrival<'_>,
    ) -> Handled {
        let Some(conn) = self.conns.get(&id) else { return Err(DropReason::CmUnknownConnection) };
        arrival.check_peer(conn)?;
        match conn.state {
            // the program is still thinking
            CmState::ReqRcvd => self.ask_for_time(id, About::Req),
            // the reply was lost, or has crossed this
            CmState::RepSent | CmState::MraRepRcvd => {
                if let Some(resend) = &conn.resend {
                    self.outbox.push_back(Outgoing { way: conn.way, mad: resend.mad.clone() });
                }
            }
            CmState::TimeWait => {
                self.refuse(req, transaction, arrival, RejectReason::STALE_CONNECTION, &[]);
            }
            _ => return Err(DropReason::CmWrongState),
        }
        Ok(Taken::Done)
    }

    fn on_rep(&mut self, rep: &Rep, transaction: u64, arrival: &Arrival<'_>) -> Handled {
        let conn = self.conns.get(&rep.remote_id).filter(|conn| !is_sidr(conn.state));
        let conn = conn.ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(conn)?;
        let id = rep.remote_id;
        match conn.state {
            CmState::ReqSent | CmState::MraReqRcvd => {}
            CmState::RepRcvd if conn.remote_id == rep.local_id => {
                self.ask_for_time(id, About::Rep);
                return Ok(Taken::Done);
            }
            // the RTU was lost
            CmState::Established if conn.remote_id == rep.local_id => {
                let rtu = Rtu {
                    local_id: id,
                    remote_id: conn.remote_id,
                    private_data: PrivateData::default(),
                };
                let (way, mad) = (conn.way, conn.message(Message::Rtu(rtu)));
                self.send(way, mad);
                return Ok(Taken::Done);
            }
            _ => return Err(DropReason::CmWrongState),
        }
        // The peer's queue pair is connected to another one of ours already (12.9.8.3.1).
        let (peer, guid) = (arrival.peer(), rep.local_ca_guid);
        if let Some(&stale) =
            self.by_remote_qpn.get(&(peer, guid, rep.local_qpn)).filter(|&&other| other != id)
        {
            let rej = Rej {
                local_id: id,
                remote_id: rep.local_id,
                about: About::Rep,
                info_length: 0,
                reason: RejectReason::STALE_CONNECTION,
                info: PrivateData::default(),
                private_data: PrivateData::default(),
            };
            self.send(
                arrival.way,
                CmMad { transaction, modifier: 0, message: Message::Rej(Box::new(rej)) },
            );
            let _ = self.disconnect(arrival.now, ConnId(stale), &[]);
            self.emit(id, |conn| CmEvent::Rejected { conn, rej: Box::new(rej) });
            self.remove(id);
            return Ok(Taken::Done);
        }
        self.cancel_retransmit(id);
        let Some(conn) = self.conns.get_mut(&id) else {
            return Err(DropReason::CmUnknownConnection);
        };
        conn.state = CmState::RepRcvd;
        conn.remote_id = rep.local_id;
        conn.remote_guid = guid;
        conn.remote_qpn = rep.local_qpn;
        let managed = conn.setup.as_mut().is_some_and(|setup| {
            setup.rep = *rep;
            setup.managed
        });
        self.by_remote_id.insert((peer, guid, rep.local_id), id);
        self.by_remote_qpn.insert((peer, guid, rep.local_qpn), id);
        if managed {
            return Ok(Taken::Replied(ConnId(id)));
        }
        self.emit(id, |conn| CmEvent::Reply { conn, rep: Box::new(*rep) });
        Ok(Taken::Done)
    }

    fn on_rtu(&mut self, rtu: &Rtu, arrival: &Arrival<'_>) -> Handled {
        let conn = self.find(rtu.remote_id, rtu.local_id, arrival)?;
        if !matches!(conn.state, CmState::RepSent | CmState::MraRepRcvd) {
            return Err(DropReason::CmWrongState);
        }
        self.establish(rtu.remote_id, Some(Box::new(rtu.private_data)));
        Ok(Taken::Done)
    }

    fn establish(&mut self, id: u32, private_data: Option<Box<PrivateData<224>>>) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.state = CmState::Established;
        }
        self.cancel_retransmit(id);
        self.emit(id, |conn| CmEvent::Established { conn, rep: None, private_data });
    }

    fn on_mra(&mut self, mra: &Mra, arrival: &Arrival<'_>) -> Handled {
        // an answer to a REQ may be the first that is heard of the peer's name
        let conn = self.conns.get_mut(&mra.remote_id).filter(|conn| !is_sidr(conn.state));
        let conn = conn.ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(conn)?;
        conn.state = match (conn.state, mra.about) {
            (CmState::ReqSent | CmState::MraReqRcvd, About::Req) => CmState::MraReqRcvd,
            (CmState::RepSent | CmState::MraRepRcvd, About::Rep)
                if conn.remote_id == mra.local_id =>
            {
                CmState::MraRepRcvd
            }
            _ => return Err(DropReason::CmWrongState),
        };
        let wait = time_of(mra.service_timeout) + time_of(self.config.response_timeout);
        self.set_deadline(mra.remote_id, Some(arrival.now.plus(wait)));
        Ok(Taken::Done)
    }

    fn on_rej(&mut self, rej: &Rej, arrival: &Arrival<'_>) -> Handled {
        // who gives up waiting for a reply does not know our name; it gives its adapter's
        let by_guid = || {
            let guid = rej
                .info
                .0
                .first_chunk()
                .filter(|_| rej.reason == RejectReason::TIMEOUT && rej.info_length >= 8)?;
            self.by_remote_id
                .get(&(arrival.peer(), u64::from_be_bytes(*guid), rej.local_id))
                .copied()
        };
        let id =
            if self.conns.contains_key(&rej.remote_id) { Some(rej.remote_id) } else { by_guid() };
        let conn = id.and_then(|id| {
            self.conns.get(&id).filter(|conn| !is_sidr(conn.state)).map(|conn| (id, conn))
        });
        let (id, conn) = conn.ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(conn)?;
        // before the reply the peer's name is not known, and a REJ of a REQ may come without one
        let knows_name = !matches!(conn.state, CmState::ReqSent | CmState::MraReqRcvd);
        if knows_name && conn.remote_id != rej.local_id {
            return Err(DropReason::CmUnknownConnection);
        }
        let over = match conn.state {
            CmState::ReqSent | CmState::MraReqRcvd | CmState::ReqRcvd => Some(false),
            // either queue pair may have sent something
            CmState::RepSent
            | CmState::MraRepRcvd
            | CmState::RepRcvd
            | CmState::Established
            | CmState::DreqSent => Some(true),
            _ => None,
        };
        let Some(time_wait) = over else { return Err(DropReason::CmWrongState) };
        let asks = matches!(conn.state, CmState::ReqSent);
        if asks && rej.reason == RejectReason::INVALID_SERVICE_ID && self.ask_again(arrival.now, id)
        {
            return Ok(Taken::Done);
        }
        self.emit(id, |conn| CmEvent::Rejected { conn, rej: Box::new(*rej) });
        if time_wait {
            self.enter_time_wait(arrival.now, id);
        } else {
            self.remove(id);
        }
        Ok(Taken::Done)
    }

    // Ending.

    fn on_dreq(&mut self, dreq: &Dreq, transaction: u64, arrival: &Arrival<'_>) -> Handled {
        let drep = |remote_id| {
            let drep =
                Drep { local_id: dreq.remote_id, remote_id, private_data: PrivateData::default() };
            CmMad { transaction, modifier: 0, message: Message::Drep(drep) }
        };
        let conn = match self.find(dreq.remote_id, dreq.local_id, arrival) {
            Ok(conn) => conn,
            // of a connection that is long gone; its peer still waits for an answer
            Err(DropReason::CmUnknownConnection) => {
                self.send(arrival.way, drep(dreq.local_id));
                return Ok(Taken::Done);
            }
            Err(reason) => return Err(reason),
        };
        if conn.local_qpn != dreq.remote_qpn {
            return Err(DropReason::CmUnknownConnection);
        }
        let id = dreq.remote_id;
        match conn.state {
            CmState::Established | CmState::RepSent | CmState::MraRepRcvd => {
                self.cancel_retransmit(id);
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.state = CmState::DreqRcvd;
                    conn.transaction = transaction;
                }
                self.emit(id, |conn| CmEvent::Disconnected { conn });
                if self.conns.get(&id).is_some_and(|conn| conn.abandoned) {
                    let _ = self.disconnect(arrival.now, ConnId(id), &[]);
                }
            }
            // both announce the end at once
            CmState::DreqSent => {
                self.send(arrival.way, drep(dreq.local_id));
                self.emit(id, |conn| CmEvent::Disconnected { conn });
                self.enter_time_wait(arrival.now, id);
            }
            CmState::TimeWait => self.send(arrival.way, drep(dreq.local_id)),
            _ => return Err(DropReason::CmWrongState),
        }
        Ok(Taken::Done)
    }

    fn on_drep(&mut self, drep: &Drep, arrival: &Arrival<'_>) -> Handled {
        let conn = self.find(drep.remote_id, drep.local_id, arrival)?;
        if conn.state != CmState::DreqSent {
            return Err(DropReason::CmWrongState);
        }
        self.emit(drep.remote_id, |conn| CmEvent::Disconnected { conn });
        self.enter_time_wait(arrival.now, drep.remote_id);
        Ok(Taken::Done)
    }

    // Datagram services.

    fn on_sidr_req(
        &mut self,
        req: &SidrReq,
        transaction: u64,
        arrival: &mut Arrival<'_>,
    ) -> Handled {
        let Some(listener) = self.listener(req.service_id, arrival.own()) else {
            let (request_id, service_id) = (req.request_id, req.service_id);
            let rep = SidrRep {
                request_id,
                status: SidrRep::NO_SERVICE,
                service_id,
                ..SidrRep::default()
            };
            self.send(
                arrival.way,
                CmMad { transaction, modifier: 0, message: Message::SidrRep(rep) },
            );
            return Ok(Taken::Done);
        };
        // the same question again, while the program is still thinking
        let key = (arrival.peer(), req.request_id);
        if self.by_question.contains_key(&key) {
            return Err(DropReason::CmWrongState);
        }
        let mut conn = Connection::new(CmState::SidrReqRcvd, arrival.way);
        conn.remote_id = req.request_id;
        conn.transaction = transaction;
        conn.service_id = req.service_id;
        let id = self.admit(listener, conn, arrival)?;
        self.by_question.insert(key, id);
        let (remote, local) = (arrival.peer(), arrival.own());
        self.emit(id, |conn| CmEvent::SidrRequest {
            listener,
            conn,
            req: Box::new(*req),
            remote,
            local,
        });
        Ok(Taken::Done)
    }

    fn on_sidr_rep(&mut self, rep: &SidrRep, arrival: &Arrival<'_>) -> Handled {
        let conn = self.conns.get(&rep.request_id).ok_or(DropReason::CmUnknownConnection)?;
        arrival.check_peer(conn)?;
        if conn.state != CmState::SidrReqSent {
            return Err(DropReason::CmWrongState);
        }
        if rep.status == SidrRep::NO_SERVICE && self.ask_again(arrival.now, rep.request_id) {
            return Ok(Taken::Done);
        }
        self.emit(rep.request_id, |conn| CmEvent::SidrReply { conn, rep: Box::new(*rep) });
        self.remove(rep.request_id);
        Ok(Taken::Done)
    }

    // Answers.

    /// Takes in what a stranger wants, if there is a place: a listener's backlog and all
    /// connections are limited.
    fn admit(
        &mut self,
        id: ListenerId,
        mut conn: Connection,
        arrival: &mut Arrival<'_>,
    ) -> Result<u32, DropReason> {
        let has_room = |listener: &&Listener| listener.pending < listener.listen.backlog;
        self.listeners.get(&id).filter(has_room).ok_or(DropReason::CmBacklog)?;
        let local_id = self.fresh_id(arrival.rng).map_err(|_| DropReason::CmBacklog)?;
        self.listeners.get_mut(&id).ok_or(DropReason::CmBacklog)?.pending += 1;
        conn.pending = Some(id);
        self.conns.insert(local_id, conn);
        Ok(local_id)
    }

    /// Rejects a request that never becomes a connection.
    fn refuse(
        &mut self,
        req: &Req,
        transaction: u64,
        arrival: &Arrival<'_>,
        reason: RejectReason,
        info: &[u8],
    ) {
        let rej = Rej {
            local_id: 0,
            remote_id: req.local_id,
            about: About::Req,
            info_length: info.len() as u8,
            reason,
            info: PrivateData::new(info).unwrap_or_default(),
            private_data: PrivateData::default(),
        };
        self.send(
            arrival.way,
            CmMad { transaction, modifier: 0, message: Message::Rej(Box::new(rej)) },
        );
    }

    fn ask_for_time(&mut self, id: u32, about: About) {
        let service_timeout = self.config.service_timeout;
        let Some(conn) = self.conns.get(&id) else { return };
        let mra = Mra {
            local_id: id,
            remote_id: conn.remote_id,
            about,
            service_timeout,
            private_data: PrivateData::default(),
        };
        let (way, mad) = (conn.way, conn.message(Message::Mra(mra)));
        self.send(way, mad);
    }
}

const fn is_sidr(state: CmState) -> bool {
    matches!(state, CmState::SidrReqSent | CmState::SidrReqRcvd)
}
