//! Connection management: how two sides agree on a connection, and on its end.
//!
//! Read first: InfiniBand volume 1, chapter 12 (communication management), above all the state
//! diagrams of 12.9.7; annex A11 (the RDMA IP CM service), for how IP addresses travel.
//!
//! `Cm` is a part of the adapter: messages arrive at QP1 and leave from there. It knows listeners,
//! connections, time and nothing of queue pairs but their numbers. Every message that wants an
//! answer is sent again until it has one.

mod command;
mod connection;
mod event;
mod handle;
mod message;
mod service;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::{net::IpAddr, time::Duration};

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

pub use command::{Accept, CmConfig, CmError, CmService, Connect, Listen, ListenerId};
pub use connection::{CmState, ConnId, QpSetup};
pub use event::CmEvent;
pub use message::{
    About, CmMad, CmParseError, Drep, Dreq, Message, Mra, PrivateData, Rej, RejectReason, Rep, Req,
    ReqPath, Rtu, SidrRep, SidrReq, without_padding,
};
pub use service::{IpHeader, PortSpace, ServiceId};

use crate::{
    addr::{QKey, Qpn},
    gids::Path,
    hash::IdHasher,
    time::Instant,
};
pub(crate) use connection::CmPath;
use connection::{Connection, Resend, Setup};
pub(crate) use handle::{Arrival, Taken};

struct Listener {
    listen: Listen,
    pending: usize,
}

/// A message that is due, and its way.
pub(crate) struct Outgoing {
    pub(crate) way: CmPath,
    pub(crate) mad: Box<CmMad>,
}

/// Messages that may wait to be sent. More are forgotten: their senders, or we, will ask again.
const OUTBOX: usize = 4096;

/// How long it takes until a peer at which nobody listens is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Connection management of one adapter.
pub(crate) struct Cm {
    config: CmConfig,
    guid: u64,
    next_listener: u32,
    listeners: BTreeMap<ListenerId, Listener>,
    by_service: BTreeMap<ServiceId, Vec<ListenerId>>,
    conns: HashMap<u32, Connection, IdHasher>,
    /// Connections by the peer's address, its adapter and its name for them. The address is there
    /// so that nobody can take another's place.
    by_remote_id: BTreeMap<(IpAddr, u64, u32), u32>,
    /// Connections by the peer's address, its adapter and its queue pair.
    by_remote_qpn: BTreeMap<(IpAddr, u64, Qpn), u32>,
    /// Questions for datagram services, by who asked and its name for them.
    by_question: BTreeMap<(IpAddr, u32), u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    outbox: VecDeque<Outgoing>,
    events: VecDeque<CmEvent>,
}

impl Cm {
    pub(crate) fn new(config: CmConfig, guid: u64) -> Self {
        Self {
            config,
            guid,
            next_listener: 0,
            listeners: BTreeMap::new(),
            by_service: BTreeMap::new(),
            conns: HashMap::default(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            by_question: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // Getters.

    pub(crate) fn state(&self, conn: ConnId) -> Option<CmState> {
        self.conns.get(&conn.0).map(|conn| conn.state)
    }

    pub(crate) fn count(&self) -> usize {
        self.conns.len()
    }

    /// What the connection's queue pair needs, between the reply and the connection's end.
    pub(crate) fn qp_setup(&self, conn: ConnId) -> Option<QpSetup> {
        self.conns.get(&conn.0)?.qp_setup()
    }

    // Commands.

    pub(crate) fn listen(&mut self, listen: Listen) -> Result<ListenerId, CmError> {
        let Self { by_service, listeners, .. } = self;
        let same = by_service.entry(listen.service_id).or_default();
        if same
            .iter()
            .any(|id| listeners.get(id).is_some_and(|own| own.listen.address == listen.address))
        {
            return Err(CmError::InUse);
        }
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        same.push(id);
        listeners.insert(id, Listener { listen, pending: 0 });
        Ok(id)
    }

    /// Ends a listener. Requests that wait for its program go on waiting for it.
    pub(crate) fn unlisten(&mut self, id: ListenerId) -> Result<(), CmError> {
        let Listener { listen, .. } = self.listeners.remove(&id).ok_or(CmError::Unknown)?;
        if let Some(same) = self.by_service.get_mut(&listen.service_id) {
            same.retain(|&own| own != id);
            if same.is_empty() {
                self.by_service.remove(&listen.service_id);
            }
        }
        Ok(())
    }

    /// Whoever listens for a service on this address: rather by the address than for any.
    fn listener(&self, service_id: ServiceId, address: IpAddr) -> Option<ListenerId> {
        let of = |address| {
            let mut ids = self.by_service.get(&service_id)?.iter();
            ids.find(|id| self.listeners.get(id).is_some_and(|own| own.listen.address == address))
                .copied()
        };
        of(Some(address)).or_else(|| of(None))
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
        path: Path,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, CmError> {
        let private_data =
            PrivateData::new(connect.private_data).ok_or(CmError::PrivateData(92))?;
        for (what, value, most) in [
            ("retry_count", connect.retry_count, 7),
            ("rnr_retry", connect.rnr_retry, 7),
            ("min_rnr_timer", connect.min_rnr_timer, 31),
            ("ack_timeout", connect.ack_timeout, 31),
        ] {
            if value > most {
                return Err(CmError::Range(what));
            }
        }
        let local_id = self.fresh_id(rng)?;
        let (transport, extended_transport) = match connect.service {
            CmService::Rc => (0, 0),
            CmService::Uc => (1, 0),
            CmService::Xrc => (3, 1),
        };
        let req = Req {
            local_id,
            service_id: connect.service_id,
            local_ca_guid: self.guid,
            local_qpn: connect.qpn,
            responder_resources: connect.responder_resources,
            initiator_depth: connect.initiator_depth,
            remote_response_timeout: self.config.response_timeout,
            transport,
            extended_transport,
            starting_psn: connect.starting_psn,
            local_response_timeout: self.config.response_timeout,
            retry_count: connect.retry_count,
            pkey: connect.pkey,
            path_mtu: connect.path_mtu as u8,
            rnr_retry: connect.rnr_retry,
            max_cm_retries: self.config.max_retries,
            srq: connect.srq,
            primary: ReqPath {
                local_lid: 0xFFFF,
                remote_lid: 0xFFFF,
                local_gid: path.src.into(),
                remote_gid: connect.av.dgid,
                flow_label: connect.av.flow_label & 0xF_FFFF,
                rate: 0,
                traffic_class: connect.av.traffic_class,
                hop_limit: if connect.av.hop_limit == 0 { 64 } else { connect.av.hop_limit },
                service_level: 0,
                subnet_local: false,
                ack_timeout: connect.ack_timeout,
            },
            private_data,
            ..Req::default()
        };
        let mut conn = Connection::new(CmState::ReqSent, CmPath { path, pkey: connect.pkey });
        conn.local_qpn = connect.qpn;
        conn.transaction = rng.next_u64();
        conn.time_wait = time_of(connect.ack_timeout);
        let (managed, min_rnr_timer) = (connect.managed, connect.min_rnr_timer);
        conn.setup = Some(Box::new(Setup {
            req,
            rep: Rep::default(),
            av: connect.av,
            managed,
            min_rnr_timer,
        }));
        let mad = conn.message(Message::Req(Box::new(req)));
        self.conns.insert(local_id, conn);
        self.send_until_answered(now, local_id, mad);
        Ok(ConnId(local_id))
    }

    /// Notes what the program answers to a request, so that [`qp_setup`](Self::qp_setup) knows.
    pub(crate) fn prepare(&mut self, id: ConnId, accept: &Accept<'_>) -> Result<(), CmError> {
        let guid = self.guid;
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::Unknown)?;
        if conn.state != CmState::ReqRcvd {
            return Err(CmError::State(conn.state));
        }
        let private_data =
            PrivateData::new(accept.private_data).ok_or(CmError::PrivateData(196))?;
        for (what, value, most) in
            [("rnr_retry", accept.rnr_retry, 7), ("min_rnr_timer", accept.min_rnr_timer, 31)]
        {
            if value > most {
                return Err(CmError::Range(what));
            }
        }
        let Some(setup) = &mut conn.setup else { return Err(CmError::Unknown) };
        setup.min_rnr_timer = accept.min_rnr_timer;
        setup.rep = Rep {
            local_id: id.0,
            remote_id: conn.remote_id,
            local_qpn: accept.qpn,
            starting_psn: accept.starting_psn,
            responder_resources: accept.responder_resources,
            initiator_depth: accept.initiator_depth,
            target_ack_delay: TARGET_ACK_DELAY,
            rnr_retry: accept.rnr_retry,
            srq: accept.srq,
            local_ca_guid: guid,
            private_data,
            ..Rep::default()
        };
        conn.local_qpn = accept.qpn;
        Ok(())
    }

    /// Sends what was [prepared](Self::prepare).
    pub(crate) fn accept(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        let Some(setup) = &conn.setup else { return };
        let mad = conn.message(Message::Rep(Box::new(setup.rep)));
        conn.state = CmState::RepSent;
        self.leave_backlog(id.0);
        self.send_until_answered(now, id.0, mad);
    }

    /// Answers a reply: the own queue pair is ready.
    pub(crate) fn ready(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), CmError> {
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::Unknown)?;
        if conn.state != CmState::RepRcvd {
            return Err(CmError::State(conn.state));
        }
        let private_data = PrivateData::new(private_data).ok_or(CmError::PrivateData(224))?;
        conn.state = CmState::Established;
        let rtu = Rtu { local_id: id.0, remote_id: conn.remote_id, private_data };
        let mad = conn.message(Message::Rtu(rtu));
        let way = conn.way;
        self.send(way, mad);
        self.cancel_retransmit(id.0);
        Ok(())
    }

    /// The same for a connection whose queue pair the adapter has moved: the program hears of it.
    pub(crate) fn complete(&mut self, id: ConnId) {
        let rep = self
            .conns
            .get(&id.0)
            .and_then(|conn| conn.setup.as_ref())
            .map(|setup| Box::new(setup.rep));
        if self.ready(id, &[]).is_ok() {
            self.emit(id.0, |conn| CmEvent::Established { conn, rep, private_data: None });
        }
    }

    /// The peer has accepted, but the own queue pair could not be moved.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnId) {
        if self.reject(now, id, RejectReason::CONSUMER, &[], &[]).is_ok() {
            self.emit(id.0, |conn| CmEvent::ConnectError { conn });
            if let Some(conn) = self.conns.get_mut(&id.0) {
                conn.abandoned = true;
            }
        }
    }

    /// The peer's queue pair has been heard, so its RTU was lost or is late (`rdma_notify`).
    pub(crate) fn notify(&mut self, id: ConnId) -> Result<(), CmError> {
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::Unknown)?;
        match conn.state {
            CmState::RepSent | CmState::MraRepRcvd => {
                conn.state = CmState::Established;
                self.cancel_retransmit(id.0);
                self.emit(id.0, |conn| CmEvent::Established {
                    conn,
                    rep: None,
                    private_data: None,
                });
                Ok(())
            }
            CmState::Established => Ok(()),
            state => Err(CmError::State(state)),
        }
    }

    /// Refuses a request, or a reply. The connection is gone.
    pub(crate) fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let conn = self.conns.get(&id.0).ok_or(CmError::Unknown)?;
        let about = match conn.state {
            CmState::ReqRcvd => About::Req,
            CmState::RepRcvd => About::Rep,
            state => return Err(CmError::State(state)),
        };
        let rej = Rej {
            local_id: id.0,
            remote_id: conn.remote_id,
            about,
            info_length: info.len().min(72) as u8,
            reason,
            info: PrivateData::new(info).ok_or(CmError::PrivateData(72))?,
            private_data: PrivateData::new(private_data).ok_or(CmError::PrivateData(148))?,
        };
        let (way, mad) = (conn.way, conn.message(Message::Rej(Box::new(rej))));
        self.send(way, mad);
        if about == About::Rep {
            // the peer's queue pair may have sent already
            self.enter_time_wait(now, id.0);
        } else {
            self.remove(id.0);
        }
        Ok(())
    }

    /// Announces the end, or answers the peer's announcement.
    pub(crate) fn disconnect(
        &mut self,
        now: Instant,
        id: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::Unknown)?;
        match conn.state {
            CmState::Established | CmState::RepSent | CmState::MraRepRcvd => {
                let private_data =
                    PrivateData::new(private_data).ok_or(CmError::PrivateData(220))?;
                let (remote_id, remote_qpn) = (conn.remote_id, conn.remote_qpn);
                let mad = conn.message(Message::Dreq(Dreq {
                    local_id: id.0,
                    remote_id,
                    remote_qpn,
                    private_data,
                }));
                conn.state = CmState::DreqSent;
                self.send_until_answered(now, id.0, mad);
            }
            CmState::DreqRcvd => {
                let private_data =
                    PrivateData::new(private_data).ok_or(CmError::PrivateData(224))?;
                let mad = conn.message(Message::Drep(Drep {
                    local_id: id.0,
                    remote_id: conn.remote_id,
                    private_data,
                }));
                let way = conn.way;
                self.send(way, mad);
                self.enter_time_wait(now, id.0);
            }
            CmState::DreqSent | CmState::TimeWait => {}
            state => return Err(CmError::State(state)),
        }
        Ok(())
    }

    /// Asks who receives datagrams for a service.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        service_id: ServiceId,
        private_data: &[u8],
        way: CmPath,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, CmError> {
        let private_data = PrivateData::new(private_data).ok_or(CmError::PrivateData(216))?;
        let request_id = self.fresh_id(rng)?;
        let mut conn = Connection::new(CmState::SidrReqSent, way);
        conn.transaction = rng.next_u64();
        conn.service_id = service_id;
        let mad = conn.message(Message::SidrReq(SidrReq {
            request_id,
            pkey: way.pkey,
            service_id,
            private_data,
        }));
        self.conns.insert(request_id, conn);
        self.send_until_answered(now, request_id, mad);
        Ok(ConnId(request_id))
    }

    /// Answers a question for a datagram service: with a queue pair and the key that it wants, or
    /// with a status other than 0.
    pub(crate) fn answer(
        &mut self,
        id: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let conn = self.conns.get(&id.0).ok_or(CmError::Unknown)?;
        if conn.state != CmState::SidrReqRcvd {
            return Err(CmError::State(conn.state));
        }
        let private_data = PrivateData::new(private_data).ok_or(CmError::PrivateData(136))?;
        let (status, qpn, qkey) = match receiver {
            Ok((qpn, qkey)) => (0, qpn, qkey),
            Err(status) => (status, Qpn::default(), QKey::default()),
        };
        let (request_id, service_id) = (conn.remote_id, conn.service_id);
        let rep = SidrRep {
            request_id,
            status,
            qpn,
            service_id,
            qkey,
            private_data,
            ..SidrRep::default()
        };
        let (way, mad) = (conn.way, conn.message(Message::SidrRep(rep)));
        self.send(way, mad);
        self.remove(id.0);
        Ok(())
    }

    /// The program has no more interest: whatever the peer still waits for it gets.
    pub(crate) fn destroy(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        conn.abandoned = true;
        // each of these is allowed in its state and carries no private data, so none can fail
        let _ = match conn.state {
            CmState::ReqRcvd | CmState::RepRcvd => {
                self.reject(now, id, RejectReason::CONSUMER, &[], &[])
            }
            CmState::ReqSent | CmState::MraReqRcvd => {
                self.give_up(id.0);
                Ok(())
            }
            CmState::RepSent | CmState::MraRepRcvd | CmState::Established | CmState::DreqRcvd => {
                self.disconnect(now, id, &[])
            }
            CmState::SidrReqRcvd => self.answer(id, Err(SidrRep::REJECTED), &[]),
            CmState::SidrReqSent => {
                self.remove(id.0);
                Ok(())
            }
            CmState::DreqSent | CmState::TimeWait => Ok(()),
        };
    }

    /// Tells the peer that its answer is not waited for any more. It finds the connection by our
    /// adapter's GUID.
    fn give_up(&mut self, id: u32) {
        if let Some(conn) = self.conns.get(&id) {
            let rej = Rej {
                local_id: id,
                remote_id: conn.remote_id,
                about: About::Other,
                info_length: 8,
                reason: RejectReason::TIMEOUT,
                info: PrivateData::new(&self.guid.to_be_bytes()).unwrap_or_default(),
                private_data: PrivateData::default(),
            };
            let (way, mad) = (conn.way, conn.message(Message::Rej(Box::new(rej))));
            self.send(way, mad);
        }
        self.remove(id);
    }

    // What is due.

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    pub(crate) fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    pub(crate) fn has_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outbox.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.set_deadline(id, None);
            self.on_deadline(now, id);
        }
    }

    fn on_deadline(&mut self, now: Instant, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let way = conn.way;
        if let Some(resend) = conn.resend.as_mut().filter(|resend| resend.left > 0) {
            resend.left -= 1;
            let mad = resend.mad.clone();
            self.enqueue(way, mad);
            self.set_deadline(id, Some(now.plus(time_of(self.config.response_timeout))));
            return;
        }
        match conn.state {
            CmState::TimeWait => {
                self.emit(id, |conn| CmEvent::TimeWaitExit { conn });
                self.remove(id);
            }
            CmState::DreqSent => {
                self.emit(id, |conn| CmEvent::Disconnected { conn });
                self.enter_time_wait(now, id);
            }
            _ => {
                self.emit(id, |conn| CmEvent::Unreachable { conn });
                self.remove(id);
            }
        }
    }

    // Inside.

    fn fresh_id(&self, rng: &mut ChaCha12Rng) -> Result<u32, CmError> {
        let (first, last) = (*self.config.ids.start(), *self.config.ids.end());
        let span = u64::from(last).saturating_sub(u64::from(first)) + 1;
        // with at most half of the range in use a free one is found after two draws on average
        let most = self.config.max_connections.min((span / 2) as usize);
        if self.conns.len() >= most {
            return Err(CmError::TooMany(most));
        }
        loop {
            let id = (u64::from(first) + rng.next_u64() % span) as u32;
            if id != 0 && !self.conns.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    fn send(&mut self, way: CmPath, mad: CmMad) {
        self.enqueue(way, Box::new(mad));
    }

    fn enqueue(&mut self, way: CmPath, mad: Box<CmMad>) {
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back(Outgoing { way, mad });
        }
    }

    fn send_until_answered(&mut self, now: Instant, id: u32, mad: CmMad) {
        let mad = Box::new(mad);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.resend = Some(Resend { mad: mad.clone(), left: self.config.max_retries, until: None });
        let way = conn.way;
        self.enqueue(way, mad);
        self.set_deadline(id, Some(now.plus(time_of(self.config.response_timeout))));
    }

    /// Whether a question that nobody listened to is put again, a little later.
    fn ask_again(&mut self, now: Instant, id: u32) -> bool {
        let listen_grace = self.config.listen_grace;
        let Some(resend) = self.conns.get_mut(&id).and_then(|conn| conn.resend.as_mut()) else {
            return false;
        };
        let until = *resend.until.get_or_insert(now.plus(listen_grace));
        if until <= now {
            return false;
        }
        resend.left += 1; // it was answered, after all
        self.set_deadline(id, Some(now.plus(RETRY_DELAY)));
        true
    }

    /// Nothing is waited for.
    fn cancel_retransmit(&mut self, id: u32) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.resend = None;
            if conn.state == CmState::Established {
                conn.setup = None;
            }
        }
        self.set_deadline(id, None);
    }

    fn set_deadline(&mut self, id: u32, deadline: Option<Instant>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(old) = core::mem::replace(&mut conn.deadline, deadline) {
            self.deadlines.remove(&(old, id));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, id));
        }
    }

    fn enter_time_wait(&mut self, now: Instant, id: u32) {
        self.cancel_retransmit(id);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.state = CmState::TimeWait;
        conn.setup = None;
        let end = now.plus(conn.time_wait);
        self.set_deadline(id, Some(end));
    }

    fn leave_backlog(&mut self, id: u32) {
        let pending = self.conns.get_mut(&id).and_then(|conn| conn.pending.take());
        if let Some(listener) = pending.and_then(|listener| self.listeners.get_mut(&listener)) {
            listener.pending -= 1;
        }
    }

    /// The connection is gone, with everything that is known of it.
    fn remove(&mut self, id: u32) {
        self.leave_backlog(id);
        self.set_deadline(id, None);
        if let Some(conn) = self.conns.remove(&id) {
            let Connection { remote_guid, remote_id, remote_qpn, way, .. } = conn;
            let peer = way.peer();
            forget(&mut self.by_remote_id, &(peer, remote_guid, remote_id), id);
            forget(&mut self.by_remote_qpn, &(peer, remote_guid, remote_qpn), id);
            forget(&mut self.by_question, &(peer, remote_id), id);
        }
    }

    fn emit(&mut self, id: u32, event: impl FnOnce(ConnId) -> CmEvent) {
        if self.conns.get(&id).is_some_and(|conn| !conn.abandoned) {
            self.events.push_back(event(ConnId(id)));
        }
    }
}

/// Removes an entry if it is that of `id`.
fn forget<K: Ord>(map: &mut BTreeMap<K, u32>, key: &K, id: u32) {
    if map.get(key) == Some(&id) {
        map.remove(key);
    }
}

/// How long a peer's queue pair may take to acknowledge, as replies say: 4.096 µs · 2^15, 134 ms,
/// as rxe has it.
const TARGET_ACK_DELAY: u8 = 15;

/// The time of a five-bit code: 4.096 µs · 2^code.
const fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1F))
}
