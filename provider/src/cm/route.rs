//! Delivery of adapter events to ids. Code under the engine's lock touches ids' shared state, never
//! handles.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use roce_transport::{
    adapter::Adapter,
    addr::{AddressVector, Gid, QKey, Qpn},
    cm::{
        ConnError, ConnEvent, ConnId, IpHeader, Listen, ListenerId, RejectReason, Rep, Req,
        ServiceId, SidrRep,
    },
    event::Event,
    qp::QpType,
    time::Instant,
};

use super::{
    kind::{EventKind, IdState, Status},
    param::{ConnParam, Param, UdParam},
    shared::{Listening, PendingRequest, QueuedEvent, RequestInfo, Shared},
};
use crate::{
    Context,
    engine::{Engine, EventSink},
    link::{Link, Preparation},
};

/// Ids of a device.
#[derive(Default)]
pub(crate) struct CmDispatcher {
    listeners: BTreeMap<ListenerId, Listener>,
    pub(super) conns: BTreeMap<ConnId, Arc<Shared>>,
    ids: BTreeMap<usize, Attached>,
}

struct Attached {
    id: Arc<Shared>,
    ip: Option<IpAddr>,
    /// Index of this device in a listener.
    device: usize,
}

struct Listener {
    id: Arc<Shared>,
    address: IpAddr,
    service_id: ServiceId,
}

/// A REQ, or without `conn` a SIDR_REQ.
struct Request<'a> {
    private_data: &'a [u8],
    /// `None`: unknown to this software.
    qp_type: Option<QpType>,
    conn: Option<ConnParam>,
}

impl Request<'_> {
    /// Consumes the request; cannot fail.
    fn refuse(&self, adapter: &mut Adapter, now: Instant, conn: ConnId, reason: RejectReason) {
        let _ = match (&self.conn, reason) {
            (Some(_), _) => adapter.cm_reject(now, conn, reason, &[]),
            (None, RejectReason::INVALID_TRANSPORT) => {
                adapter.sidr_respond(conn, Err(SidrRep::NO_SERVICE), &[])
            }
            (None, _) => adapter.sidr_respond(conn, Err(SidrRep::REJECTED), &[]),
        };
    }

    fn param(&self, adapter: &Adapter, remote: IpAddr, local: IpAddr) -> Param {
        if let Some(conn) = &self.conn {
            return Param::Conn(conn.clone());
        }
        let gid = Gid::from(local);
        let index = adapter.gids().position(|own| own == gid);
        Param::Ud(UdParam {
            private_data: self.private_data[IpHeader::LEN..].into(),
            av: AddressVector::new(remote.into(), index.unwrap_or(0)),
            qpn: Qpn::default(),
            qkey: QKey::default(),
        })
    }
}

impl CmDispatcher {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.conns.is_empty() && self.ids.is_empty()
    }

    /// `device`: index of this device in a listener.
    pub(super) fn attach(&mut self, id: &Arc<Shared>, ip: Option<IpAddr>, device: usize) {
        self.ids.insert(Arc::as_ptr(id).addr(), Attached { id: id.clone(), ip, device });
    }

    pub(super) fn detach(&mut self, id: &Arc<Shared>) {
        self.ids.remove(&Arc::as_ptr(id).addr());
    }

    /// Listens on each wanted address, except addresses with another listener and `refused`
    /// addresses of another user's program. True: the id listens there.
    pub(super) fn listen(
        &mut self,
        id: &Arc<Shared>,
        adapter: &mut Adapter,
        link: &mut dyn Link,
        refused: &[IpAddr],
    ) -> Result<BTreeMap<IpAddr, bool>, ConnError> {
        let Some(listening) = id.state().listening else { return Ok(BTreeMap::new()) };
        let Listening { service_id, backlog, .. } = listening;
        let mut listened = BTreeMap::new();
        for address in addresses(adapter, listening) {
            if refused.contains(&address) {
                listened.insert(address, false);
                continue;
            }
            // an unshared address is this process's
            let claimed =
                link.sharing().map_or(Ok(()), |sharing| sharing.claim(service_id, address));
            let is_own = |it: &Listener| Arc::ptr_eq(&it.id, id) && it.address == address;
            let is_on = if self.listeners.values().any(is_own) {
                true
            } else if claimed.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
                false
            } else {
                match adapter.cm_listen(Listen { service_id, address: Some(address), backlog }) {
                    Ok(name) => {
                        let listener = Listener { id: id.clone(), address, service_id };
                        self.listeners.insert(name, listener);
                        true
                    }
                    Err(ConnError::InUse) => false,
                    Err(error) => return Err(error),
                }
            };
            listened.insert(address, is_on);
        }
        Ok(listened)
    }

    fn unlisten(&mut self, id: &Arc<Shared>, adapter: &mut Adapter, link: &mut dyn Link) {
        self.listeners.retain(|&name, other| {
            let is_own = Arc::ptr_eq(&other.id, id);
            if is_own {
                let _ = adapter.cm_mut().unlisten(name);
                if let Some(sharing) = link.sharing() {
                    sharing.release(other.service_id, other.address);
                }
            }
            !is_own
        });
    }

    fn deliver_request(
        &mut self,
        (listener, conn): (ListenerId, ConnId),
        message: Request<'_>,
        [remote, local]: [IpAddr; 2],
        adapter: &mut Adapter,
        now: Instant,
    ) {
        let found = self.listeners.get(&listener);
        let found = found.and_then(|Listener { id, .. }| {
            let attached = self.ids.get(&Arc::as_ptr(id).addr())?;
            Some((id.clone(), attached.device, id.state().listening?))
        });
        let Some((listener, device, Listening { qp_type, service_id, .. })) = found else {
            // the listener is being destroyed
            return message.refuse(adapter, now, conn, RejectReason::CONSUMER);
        };
        let serves = |requested: QpType| {
            requested == qp_type
                || (requested, qp_type) == (QpType::XrcTarget, QpType::XrcInitiator)
        };
        if !message.qp_type.is_some_and(serves) {
            return message.refuse(adapter, now, conn, RejectReason::INVALID_TRANSPORT);
        }
        // must match the packet's addresses
        let is_valid = |header: &IpHeader| {
            let IpHeader { src, dst, .. } = *header;
            (src, dst) == (remote, local) && !src.is_multicast() && !src.is_unspecified()
        };
        let header = message.private_data.first_chunk().and_then(IpHeader::parse);
        let Some(header) = header.filter(is_valid) else {
            return message.refuse(adapter, now, conn, RejectReason::CONSUMER);
        };
        let param = message.param(adapter, remote, local);
        let info = RequestInfo {
            qp_type,
            local: SocketAddr::new(local, service_id.0 as u16),
            peer: SocketAddr::new(remote, header.src_port),
            conn: message.conn,
        };
        let id = Arc::new(Shared::of_request(&listener, conn, info));
        self.conns.insert(conn, id.clone());
        let request = Some(PendingRequest { listener: listener.clone(), device, conn });
        let (kind, status) = (EventKind::ConnectRequest, Status::Success);
        listener.push_request(QueuedEvent { id, request, kind, status, param });
    }

    fn deliver_sidr_reply(&mut self, conn: ConnId, rep: &SidrRep) {
        let Some(id) = self.conns.get(&conn) else { return };
        let av = id.state().av;
        let private_data = rep.private_data.0.into();
        let (kind, status, param) = match (av, rep.status) {
            (Some(av), 0) => {
                let ud = UdParam { private_data, av, qpn: rep.qpn, qkey: rep.qkey };
                (EventKind::Established, Status::Success, Param::Ud(ud))
            }
            (_, status) => {
                (EventKind::Unreachable, Status::Sidr(status), Param::Private(private_data))
            }
        };
        self.emit(conn, kind, status, param);
    }

    fn emit(&mut self, conn: ConnId, kind: EventKind, status: Status, param: Param) {
        let Some(id) = self.conns.get(&conn) else { return };
        id.state().state = match kind {
            EventKind::ConnectResponse => IdState::ResponseReceived,
            EventKind::Established => IdState::Established,
            EventKind::Disconnected => IdState::Disconnected,
            _ => IdState::Closed,
        };
        if id.has_had_handle() {
            id.emit(kind, status, param);
        } else {
            // The peer withdrew an untaken request: hidden, or a peer could fill the channel.
            id.withdraw();
            self.forget(conn);
        }
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(id) = self.conns.remove(&conn) {
            id.state().conn = None;
        }
    }

    /// ERR flushes early posts.
    fn fail_qp(&self, conn: ConnId, adapter: &mut Adapter, now: Instant) {
        if let Some(qpn) = self.conns.get(&conn).and_then(|id| id.state().qpn) {
            let _ = adapter.to_error(now, qpn); // may be gone, or in ERR
        }
    }
}

/// `keep`: the id stays attached to the devices.
pub(super) fn unlisten(id: &Arc<Shared>, contexts: &[Context], keep: bool) {
    for context in contexts {
        context.inner.engine.command_shard(|shard, _| {
            let (adapter, link, dispatcher) = shard.parts::<CmDispatcher>();
            dispatcher.unlisten(id, adapter, link);
            if !keep {
                dispatcher.detach(id);
            }
        });
    }
}

fn addresses(adapter: &Adapter, listening: Listening) -> Vec<IpAddr> {
    let own = adapter.gids().entries().iter().filter(|gid| !gid.is_zero());
    own.map(|gid| gid.to_ip()).filter(|&ip| listening.takes(ip)).collect()
}

/// Claims the service where a claim may wait. Returns addresses that another user's program has.
pub(super) fn claim(engine: &Engine, listening: Listening) -> Vec<IpAddr> {
    let claims: Vec<_> = engine.command_shard(|shard, _| {
        let (adapter, link, _) = shard.parts::<CmDispatcher>();
        let Some(sharing) = link.sharing() else { return Vec::new() };
        let mut claim = |address| sharing.prepare_claim(listening.service_id, address, true);
        let addresses = addresses(adapter, listening).into_iter();
        addresses.filter_map(|address| Some((address, claim(address)?))).collect()
    });
    let refused = |(address, claim)| is_refused(claim).then_some(address);
    claims.into_iter().filter_map(refused).collect()
}

/// True if another process holds the claim; a silent one does not.
pub(super) fn is_refused(claim: Preparation<io::Error>) -> bool {
    claim().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

impl EventSink for CmDispatcher {
    fn on_event(&mut self, event: Event, adapter: &mut Adapter, link: &mut dyn Link) {
        match event {
            Event::DeviceFatal => {
                for Attached { id, .. } in self.ids.values() {
                    id.emit(EventKind::DeviceRemoval, Status::Errno(libc::ENODEV), Param::None);
                }
            }
            Event::GidChange => {
                let gone = |ip: IpAddr| !adapter.gids().entries().contains(&ip.into());
                for Attached { id, .. } in self.ids.values().filter(|one| one.ip.is_some_and(gone))
                {
                    id.emit(EventKind::AddrChange, Status::Errno(libc::EADDRNOTAVAIL), Param::None);
                }
                // wildcard listeners extend to new addresses
                let ids: Vec<_> = self.ids.values().map(|one| one.id.clone()).collect();
                for id in ids {
                    let _ = self.listen(&id, adapter, link, &[]); // may be taken
                }
            }
            _ => {}
        }
    }

    fn on_cm_event(
        &mut self,
        event: ConnEvent,
        adapter: &mut Adapter,
        now: Instant,
    ) -> Option<ConnEvent> {
        match event {
            ConnEvent::Request { listener, conn, req, remote, local } => {
                let request = Request {
                    private_data: &req.private_data.0,
                    qp_type: qp_type_of(&req),
                    conn: Some(of_request(&req)),
                };
                self.deliver_request((listener, conn), request, [remote, local], adapter, now);
            }
            ConnEvent::SidrRequest { listener, conn, req, remote, local } => {
                let private_data = &req.private_data.0;
                let request = Request { private_data, qp_type: Some(QpType::Ud), conn: None };
                self.deliver_request((listener, conn), request, [remote, local], adapter, now);
            }
            ConnEvent::Reply { conn, rep } => {
                let param = Param::Conn(of_reply(&rep));
                self.emit(conn, EventKind::ConnectResponse, Status::Success, param);
            }
            ConnEvent::Established { conn, rep, private_data } => {
                let param = match (rep, private_data) {
                    (Some(rep), _) => Param::Conn(of_reply(&rep)),
                    (None, Some(data)) => Param::Private(data.0.into()),
                    (None, None) => Param::None,
                };
                self.emit(conn, EventKind::Established, Status::Success, param);
            }
            ConnEvent::Rejected { conn, rej } => {
                self.fail_qp(conn, adapter, now);
                let param = Param::Private(rej.private_data.0.into());
                self.emit(conn, EventKind::Rejected, Status::Rejected(rej.reason), param);
                if adapter.cm().state(conn).is_none() {
                    self.forget(conn);
                }
            }
            ConnEvent::Unreachable(conn) => {
                let status = Status::Errno(libc::ETIMEDOUT);
                self.emit(conn, EventKind::Unreachable, status, Param::None);
                self.forget(conn);
            }
            ConnEvent::ConnectError(conn) => {
                self.fail_qp(conn, adapter, now);
                let status = Status::Errno(libc::EINVAL);
                self.emit(conn, EventKind::ConnectError, status, Param::None);
                self.forget(conn);
            }
            ConnEvent::Disconnected(conn) => {
                self.emit(conn, EventKind::Disconnected, Status::Success, Param::None);
            }
            ConnEvent::TimeWaitExit(conn) => {
                self.emit(conn, EventKind::TimewaitExit, Status::Success, Param::None);
                self.forget(conn);
            }
            ConnEvent::SidrReply { conn, rep } => {
                self.deliver_sidr_reply(conn, &rep);
                self.forget(conn);
            }
        }
        None
    }
}

const fn qp_type_of(req: &Req) -> Option<QpType> {
    match (req.transport, req.extended_transport) {
        (0, _) => Some(QpType::Rc),
        (1, _) => Some(QpType::Uc),
        (3, 1) => Some(QpType::XrcTarget),
        _ => None,
    }
}

/// In the receiver's view: each side's depth limits the other.
fn of_request(req: &Req) -> ConnParam {
    ConnParam {
        private_data: req.private_data.0[IpHeader::LEN..].into(),
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry,
        srq: req.srq,
        qpn: Some(req.local_qpn),
    }
}

fn of_reply(rep: &Rep) -> ConnParam {
    ConnParam {
        private_data: rep.private_data.0.into(),
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.flow_control,
        retry_count: 0,
        rnr_retry_count: rep.rnr_retry,
        srq: rep.srq,
        qpn: Some(rep.local_qpn),
    }
}
