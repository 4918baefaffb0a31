//! Ids: what they are, and their end.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use roce_transport::{
    addr::{AddressVector, Mtu, Qpn},
    cm::{ConnId, PortSpace, ServiceId},
    qp::QpType,
};

use super::{
    CmError, EventChannel,
    channel::{Queue, Raw, Request},
    devices::Place,
    event::{ConnParam, EventKind, Param, Status},
    ports::PortLease,
    queues::{CmQpAttr, Queues},
};
use crate::{Context, ProtectionDomain};

/// A communication id (`rdma_cm_id`): a socket for RDMA. Cheap to clone; its last handle destroys it (`rdma_destroy_id`), which
/// ends its connection, answers what still waits for an answer, and drops its events. Its queue pair goes with it, unless the
/// program holds another handle of that.
///
/// The calls on one id, in their order:
///
/// * to connect: [`resolve_addr`](Self::resolve_addr), [`resolve_route`](Self::resolve_route), [`create_qp`](Self::create_qp),
///   [`connect`](Self::connect), [`disconnect`](Self::disconnect);
/// * to be connected to: [`bind_addr`](Self::bind_addr), [`listen`](Self::listen), and on the new id that comes with each
///   [`ConnectRequest`](EventKind::ConnectRequest): [`create_qp`](Self::create_qp), [`accept`](Self::accept).
///
/// On an id with an [`EventChannel`], each call starts something, and events tell what comes of it. On one
/// [without](Self::new_sync), each call waits for that.
#[derive(Clone)]
pub struct CmId {
    pub(super) handle: Arc<Handle>,
}

/// Where an id stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdState {
    /// New.
    Idle,
    /// It has an own address and port.
    Bound,
    /// It knows the peer's address and how to get there.
    AddrResolved,
    /// It knows the path MTU.
    RouteResolved,
    /// It waits for requests.
    Listening,
    /// Its request is on its way.
    Connecting,
    /// It is a request that waits for an answer.
    RequestReceived,
    /// The peer has accepted; the program is to move its queue pair.
    ResponseReceived,
    /// It has accepted; the peer has not confirmed yet.
    Accepted,
    /// Connected; or, for datagrams, the peer's queue pair is known, or told.
    Established,
    /// The connection is over.
    Disconnected,
    /// Nothing more can come of it.
    Closed,
}

/// What the engine and the handles of an id have in common.
pub(crate) struct Shared {
    /// Not set while nobody has looked at the request that it is.
    handle: OnceLock<Weak<Handle>>,
    queue: Mutex<Arc<Queue>>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) state: IdState,
    pub(super) conn: Option<ConnId>,
    /// The own queue pair.
    pub(super) qpn: Option<Qpn>,
    /// Of an active side.
    pub(super) av: Option<AddressVector>,
    /// Of a listener.
    pub(super) listening: Option<Listening>,
    /// Of a passive side.
    pub(super) incoming: Option<Incoming>,
}

#[derive(Clone, Copy)]
pub(super) struct Listening {
    pub(super) qp_type: QpType,
    pub(super) service_id: ServiceId,
    /// The address that it is bound to.
    pub(super) address: IpAddr,
    pub(super) afonly: bool,
    pub(super) backlog: usize,
}

impl Listening {
    /// Whether it wants requests to this address.
    pub(super) fn takes(&self, ip: IpAddr) -> bool {
        match self.address {
            IpAddr::V4(all) if all.is_unspecified() => ip.is_ipv4(),
            IpAddr::V6(all) if all.is_unspecified() => ip.is_ipv6() || !self.afonly,
            own => ip == own,
        }
    }
}

/// A request that has come.
#[derive(Clone)]
pub(super) struct Incoming {
    pub(super) qp_type: QpType,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// `None` for a datagram service.
    pub(super) conn: Option<ConnParam>,
}

/// The handles' side of an id. Its lock is taken before the engine's.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) port_space: PortSpace,
    parts: Mutex<Parts>,
}

pub(super) struct Parts {
    pub(super) channel: EventChannel,
    /// Calls wait for what comes of them.
    pub(super) sync: bool,
    pub(super) options: Options,
    /// The device that the program wants.
    pub(super) context: Option<Context>,
    pub(super) place: Option<Place>,
    pub(super) lease: Option<PortLease>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) path_mtu: Mtu,
    pub(super) queues: Option<Queues>,
    /// Of a listener: its devices.
    pub(super) listening: Vec<Context>,
    /// Multicast groups, each with whether the queue pair is attached.
    pub(super) groups: BTreeMap<IpAddr, bool>,
    /// Of a listening endpoint: what its requests' queue pairs are made from.
    pub(super) template: Option<(Option<ProtectionDomain>, CmQpAttr)>,
    /// Of an id without a channel: what has happened last.
    pub(super) last: Option<(EventKind, Status, Param)>,
}

/// See the setters.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) qp_type: QpType,
    pub(super) tos: u8,
    pub(super) ack_timeout: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) reuse_addr: bool,
    pub(super) afonly: bool,
}

impl Shared {
    fn new(queue: Arc<Queue>, state: State) -> Self {
        Self { handle: OnceLock::new(), queue: Mutex::new(queue), state: Mutex::new(state) }
    }

    /// A request to `listener`, which nobody has looked at yet.
    pub(super) fn of_request(listener: &Self, conn: ConnId, incoming: Incoming) -> Self {
        let state = State { conn: Some(conn), incoming: Some(incoming), ..State::new(IdState::RequestReceived) };
        Self::new(listener.queue().clone(), state)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Arc<Queue>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn upgrade(&self) -> Option<CmId> {
        Some(CmId { handle: self.handle.get()?.upgrade()? })
    }

    /// Whether there is, or was, a handle.
    pub(super) fn is_handed_out(&self) -> bool {
        self.handle.get().is_some()
    }

    pub(super) fn push(&self, raw: Raw) {
        self.queue().push(raw);
    }

    /// Tells of a request to this listener.
    pub(super) fn push_request(&self, raw: Raw) {
        let queue = self.queue();
        *raw.id.queue() = queue.clone();
        queue.push(raw);
    }

    pub(super) fn tell(self: &Arc<Self>, kind: EventKind, status: Status, param: Param) {
        self.push(Raw { id: self.clone(), request: None, kind, status, param });
    }

    /// Takes the request that it is out of its listener's channel.
    pub(super) fn withdraw(&self) {
        self.queue().extract(|raw| std::ptr::eq(&*raw.id, self));
    }

    /// Everything that waits to be heard of it.
    fn extract(&self) -> Vec<Raw> {
        self.queue().extract(|raw| self.owns(raw))
    }

    fn owns(&self, raw: &Raw) -> bool {
        std::ptr::eq(&*raw.id, self) || raw.request.as_ref().is_some_and(|request| std::ptr::eq(&*request.listener, self))
    }

    /// Its events come elsewhere from now on, those that were not taken, too.
    fn migrate(&self, to: &Arc<Queue>) {
        let mut queue = self.queue();
        for raw in queue.extract(|raw| self.owns(raw)) {
            if !std::ptr::eq(&*raw.id, self) {
                *raw.id.queue() = to.clone();
            }
            to.push(raw);
        }
        *queue = to.clone();
    }
}

impl State {
    const fn new(state: IdState) -> Self {
        Self { state, conn: None, qpn: None, av: None, listening: None, incoming: None }
    }
}

impl Parts {
    fn new(channel: EventChannel, sync: bool, qp_type: QpType) -> Self {
        Self {
            channel,
            sync,
            options: Options { qp_type, tos: 0, ack_timeout: 16, min_rnr_timer: 12, reuse_addr: false, afonly: false },
            context: None,
            place: None,
            lease: None,
            local: None,
            peer: None,
            path_mtu: Mtu::B1024,
            queues: None,
            listening: Vec::new(),
            groups: BTreeMap::new(),
            template: None,
            last: None,
        }
    }

    pub(super) fn place(&self) -> Result<&Place, CmError> {
        self.place.as_ref().ok_or(CmError::NoDevice)
    }

    /// The id belongs to a device from now on.
    pub(super) fn attach(&mut self, shared: &Arc<Shared>, place: Place) {
        self.channel.attach(&place.context, place.opened);
        let ip = Some(place.ip);
        place.context.inner.engine.command_shard(|shard, _| shard.adapter_and_routes().1.attach(shared, ip));
        self.place = Some(place);
    }
}

impl CmId {
    pub(super) fn create(channel: &EventChannel, port_space: PortSpace, sync: bool) -> Self {
        let shared = Arc::new(Shared::new(channel.inner.queue.clone(), State::new(IdState::Idle)));
        let qp_type = match port_space {
            PortSpace::Tcp | PortSpace::Ib => QpType::Rc,
            PortSpace::Udp | PortSpace::Ipoib => QpType::Ud,
        };
        Self::with(shared, port_space, Parts::new(channel.clone(), sync, qp_type))
    }

    fn with(shared: Arc<Shared>, port_space: PortSpace, parts: Parts) -> Self {
        let handle = Arc::new(Handle { shared, port_space, parts: Mutex::new(parts) });
        let _ = handle.shared.handle.set(Arc::downgrade(&handle)); // set once: by whoever makes the handle
        Self { handle }
    }

    /// Makes an id without a channel (`rdma_create_id` with none): its calls wait for what comes of them.
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn new_sync(port_space: PortSpace) -> io::Result<Self> {
        Ok(Self::create(&EventChannel::new()?, port_space, true))
    }

    /// The id of a request that this listener's program takes.
    pub(super) fn adopt(&self, shared: Arc<Shared>, request: &Request) -> Option<Self> {
        let listener = self.parts();
        let context = listener.listening.get(request.device)?;
        let incoming = shared.state().incoming.clone()?;
        let mut parts = Parts::new(listener.channel.clone(), false, incoming.qp_type);
        parts.options = Options { qp_type: incoming.qp_type, ..listener.options };
        parts.local = Some(incoming.local);
        parts.peer = Some(incoming.peer);
        let place = Place { context: context.clone(), ip: incoming.local.ip(), opened: false };
        drop(listener);
        parts.attach(&shared, place);
        Some(Self::with(shared, self.handle.port_space, parts))
    }

    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.handle.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Refuses what is not possible in the id's state.
    pub(super) fn check(&self, allowed: &[IdState]) -> Result<IdState, CmError> {
        let state = self.shared().state().state;
        if allowed.contains(&state) { Ok(state) } else { Err(CmError::State(state)) }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> IdState {
        self.shared().state().state
    }

    /// Its port space.
    #[must_use]
    pub fn port_space(&self) -> PortSpace {
        self.handle.port_space
    }

    /// The type of its queue pair.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.parts().options.qp_type
    }

    /// The device that it belongs to (`id->verbs`), from the call on that bound it to an address or resolved one.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.parts().place.as_ref().map(|place| place.context.clone())
    }

    /// The channel that tells of it.
    #[must_use]
    pub fn channel(&self) -> EventChannel {
        self.parts().channel.clone()
    }

    /// Its own address and port (`rdma_get_local_addr`), as far as known.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.parts().local
    }

    /// The peer's address and port (`rdma_get_peer_addr`).
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.parts().peer
    }

    /// Its own port (`rdma_get_src_port`); 0 while it has none.
    #[must_use]
    pub fn src_port(&self) -> u16 {
        self.local_addr().map_or(0, |address| address.port())
    }

    /// The peer's port (`rdma_get_dst_port`); 0 while there is none.
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        self.peer_addr().map_or(0, |address| address.port())
    }

    /// Its events go to another channel from now on (`rdma_migrate_id`), those that were not taken, too.
    pub fn migrate_id(&self, channel: &EventChannel) {
        let mut parts = self.parts();
        if let Some(place) = &parts.place {
            channel.attach(&place.context, place.opened);
        }
        for context in &parts.listening {
            channel.attach(context, false);
        }
        self.shared().migrate(&channel.inner.queue);
        parts.channel = channel.clone();
        parts.sync = false;
    }

    /// The same, with calls that wait from now on, on a channel of its own (`rdma_migrate_id` to none).
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn make_sync(&self) -> io::Result<()> {
        self.migrate_id(&EventChannel::new()?);
        self.parts().sync = true;
        Ok(())
    }

    // Options.

    /// The device that it is to use, instead of the one that fits its addresses. Before it belongs to any.
    ///
    /// # Errors
    /// [`CmError::State`].
    pub fn set_context(&self, context: &Context) -> Result<(), CmError> {
        let mut parts = self.parts();
        self.check(&[IdState::Idle])?;
        parts.context = Some(context.clone());
        Ok(())
    }

    /// The type of its queue pair, for [`PortSpace::Ib`] (`rdma_addrinfo.ai_qp_type`). XRC queue pairs the program moves itself.
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::WrongService`] when the port space has queue pairs of one type only.
    pub fn set_qp_type(&self, qp_type: QpType) -> Result<(), CmError> {
        let mut parts = self.parts();
        self.check(&[IdState::Idle])?;
        if self.port_space() != PortSpace::Ib && qp_type != parts.options.qp_type {
            return Err(CmError::WrongService(qp_type));
        }
        parts.options.qp_type = qp_type;
        Ok(())
    }

    /// Type of service of its packets (`RDMA_OPTION_ID_TOS`): IPv4 TOS or IPv6 traffic class. 0 by default. Before it connects.
    pub fn set_tos(&self, tos: u8) {
        self.parts().options.tos = tos;
    }

    /// The acknowledge timeout of both sides' queue pairs (`RDMA_OPTION_ID_ACK_TIMEOUT`): the code of 4.096 µs · 2^code, 0..=31; 0
    /// means for ever. 16 (268 ms) by default. Before it connects.
    ///
    /// # Errors
    /// [`CmError::Range`].
    pub fn set_ack_timeout(&self, code: u8) -> Result<(), CmError> {
        if code > 31 {
            return Err(CmError::Range("ack_timeout"));
        }
        self.parts().options.ack_timeout = code;
        Ok(())
    }

    /// For how long its queue pair asks the peer to wait when no receive request is posted (`rdma_set_min_rnr_timer`): a code,
    /// 0..=31; see [`rnr_timer`](roce_transport::time::rnr_timer). 12 (0.64 ms) by default. Before it connects or accepts.
    ///
    /// # Errors
    /// [`CmError::Range`].
    pub fn set_min_rnr_timer(&self, code: u8) -> Result<(), CmError> {
        if code > 31 {
            return Err(CmError::Range("min_rnr_timer"));
        }
        self.parts().options.min_rnr_timer = code;
        Ok(())
    }

    /// Whether others that want so, too, may bind to the same address and port (`RDMA_OPTION_ID_REUSEADDR`), unless one listens.
    /// Off by default.
    ///
    /// # Errors
    /// [`CmError::State`] once it is bound.
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<(), CmError> {
        let mut parts = self.parts();
        self.check(&[IdState::Idle])?;
        parts.options.reuse_addr = reuse;
        Ok(())
    }

    /// Whether one that is bound to all IPv6 addresses is not bound to the IPv4 ones, too (`RDMA_OPTION_ID_AFONLY`). Off by default.
    ///
    /// # Errors
    /// [`CmError::State`] once it is bound.
    pub fn set_afonly(&self, afonly: bool) -> Result<(), CmError> {
        let mut parts = self.parts();
        self.check(&[IdState::Idle])?;
        parts.options.afonly = afonly;
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Self { shared, parts, .. } = self;
        let parts = parts.get_mut().unwrap_or_else(PoisonError::into_inner);
        for context in &parts.listening {
            context.inner.engine.command_shard(|shard, _| {
                let (adapter, routes) = shard.adapter_and_routes();
                routes.unlisten(shared, adapter);
                routes.detach(shared);
            });
        }
        for (group, attached) in std::mem::take(&mut parts.groups) {
            if let Some(queues) = parts.queues.as_ref().filter(|_| attached) {
                let _ = queues.qp.detach_mcast(group.into()); // the program may have done so
            }
        }
        if let Some(place) = &parts.place {
            place.context.inner.engine.command_shard(|shard, now| {
                let (adapter, routes) = shard.adapter_and_routes();
                let conn = shared.state().conn.take();
                if let Some(conn) = conn {
                    routes.disconnect(conn);
                    adapter.cm_destroy(now, conn);
                }
                routes.detach(shared);
            });
        }
        // nobody will answer requests that were not taken
        for raw in shared.extract() {
            let Some(request) = raw.request else { continue };
            let Some(context) = parts.listening.get(request.device) else { continue };
            context.inner.engine.command_shard(|shard, now| {
                let (adapter, routes) = shard.adapter_and_routes();
                routes.disconnect(request.conn);
                adapter.cm_destroy(now, request.conn);
            });
        }
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmId")
            .field("port_space", &self.handle.port_space)
            .field("state", &self.state())
            .field("address", &Arc::as_ptr(&self.handle.shared))
            .finish_non_exhaustive()
    }
}

impl PartialEq for CmId {
    /// Whether they are handles of one id.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }
}

impl Eq for CmId {}
