//! Communication ids.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use roce_transport::{
    addr::{AddressVector, Mtu},
    cm::PortSpace,
    ids::Qpn,
    psn::Psn,
    qp::QpType,
};

use super::{
    channel::EventChannel,
    devices::DeviceAddr,
    error::CmError,
    kind::{EventKind, IdState, Status},
    param::Param,
    ports::PortLease,
    queues::{CmQpAttr, Queues, default_qp_type},
    route::{self, CmDispatcher},
    shared::{PendingRequest, Shared, State},
};
use crate::{Context, ProtectionDomain, sync::Mutex};

/// Communication id (`rdma_cm_id`), cheap to clone.
///
/// The last handle destroys the id (`rdma_destroy_id`), with its connection, queue pair, events and
/// pending requests.
///
/// Order of calls:
///
/// * to connect: [`resolve_addr`](Self::resolve_addr), [`resolve_route`](Self::resolve_route),
///   [`create_qp`](Self::create_qp), [`connect`](Self::connect), [`disconnect`](Self::disconnect);
/// * to listen: [`bind_addr`](Self::bind_addr), [`listen`](Self::listen), and for the new id of a
///   [`ConnectRequest`](EventKind::ConnectRequest): [`create_qp`](Self::create_qp),
///   [`accept`](Self::accept).
///
/// With an [`EventChannel`], events report results; [without](Self::new_sync), calls wait.
///
/// ```no_run
/// # use roce_provider::cm::{CmId, CmQpAttr, ConnParam, PortSpace};
/// # use std::time::Duration;
/// let id = CmId::new_sync(PortSpace::Tcp)?;
/// id.resolve_addr(None, "192.0.2.1:7471".parse()?, Duration::from_secs(2))?;
/// id.resolve_route(Duration::from_secs(2))?;
/// id.create_qp(None, &CmQpAttr::default())?;
/// id.connect(&ConnParam::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CmId {
    pub(super) handle: Arc<IdHandle>,
}

/// Handle side of an id; its lock precedes the engine's lock.
pub(super) struct IdHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) port_space: PortSpace,
    user_data: AtomicU64,
    inner: Mutex<IdInner>,
}

pub(super) struct IdInner {
    pub(super) events: Results,
    pub(super) options: Options,
    /// Device set by the program.
    pub(super) context: Option<Context>,
    pub(super) device_addr: Option<DeviceAddr>,
    pub(super) lease: Option<PortLease>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) path_mtu: Mtu,
    pub(super) queues: Option<Queues>,
    /// Program's queue pair that the adapter moves; true with an SRQ.
    pub(super) adopted: Option<(Qpn, bool)>,
    /// First PSN that the passive side expects, once drawn.
    pub(super) psn: Option<Psn>,
    pub(super) listener: Listener,
    /// Multicast groups; true if the queue pair is attached.
    pub(super) groups: BTreeMap<IpAddr, bool>,
}

pub(super) struct Results {
    pub(super) channel: EventChannel,
    /// True if calls wait.
    pub(super) sync: bool,
    /// Latest event of an id without a channel.
    pub(super) last: Option<(EventKind, Status, Param)>,
}

#[derive(Default)]
pub(super) struct Listener {
    pub(super) devices: Vec<Context>,
    /// For an endpoint's requests.
    pub(super) template: Option<(Option<ProtectionDomain>, CmQpAttr)>,
}

impl IdInner {
    fn new(channel: EventChannel, sync: bool, qp_type: QpType) -> Self {
        Self {
            events: Results { channel, sync, last: None },
            options: Options {
                qp_type,
                tos: 0,
                ack_timeout: None,
                min_rnr_timer: 12,
                reuse_addr: false,
                afonly: None,
            },
            context: None,
            device_addr: None,
            lease: None,
            local: None,
            peer: None,
            path_mtu: Mtu::B1024,
            queues: None,
            adopted: None,
            psn: None,
            listener: Listener::default(),
            groups: BTreeMap::new(),
        }
    }

    pub(super) fn device_addr(&self) -> Result<&DeviceAddr, CmError> {
        self.device_addr.as_ref().ok_or(CmError::NoDevice)
    }

    pub(super) fn attach(&mut self, shared: &Arc<Shared>, device_addr: DeviceAddr) {
        self.events.channel.attach(&device_addr.context, device_addr.opened);
        let ip = Some(device_addr.ip);
        device_addr.context.inner.engine.command_shard(|shard, _| {
            shard.sink::<CmDispatcher>().attach(shared, ip, 0);
        });
        self.device_addr = Some(device_addr);
    }
}

impl CmId {
    /// `None` once the last handle is gone.
    pub(super) fn of(shared: &Shared) -> Option<Self> {
        Some(Self { handle: shared.handle()?.downcast().ok()? })
    }

    pub(super) fn create(channel: &EventChannel, port_space: PortSpace, sync: bool) -> Self {
        let state = State::new(IdState::Idle);
        let shared = Arc::new(Shared::new(channel.inner.queue.clone(), state));
        let qp_type = default_qp_type(port_space);
        Self::with(shared, port_space, IdInner::new(channel.clone(), sync, qp_type))
    }

    fn with(shared: Arc<Shared>, port_space: PortSpace, inner: IdInner) -> Self {
        let handle = Arc::new(IdHandle {
            shared,
            port_space,
            user_data: AtomicU64::new(0),
            inner: Mutex::new(inner),
        });
        handle.shared.set_handle(&handle);
        Self { handle }
    }

    /// Creates an id without a channel (`rdma_create_id`): its calls wait.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new_sync(port_space: PortSpace) -> io::Result<Self> {
        Ok(Self::create(&EventChannel::new()?, port_space, true))
    }

    /// Id of a request taken from this listener.
    pub(super) fn adopt(&self, shared: Arc<Shared>, request: &PendingRequest) -> Option<Self> {
        let listener = self.inner();
        let context = listener.listener.devices.get(request.device)?;
        let info = shared.state().request.clone()?;
        let mut inner = IdInner::new(listener.events.channel.clone(), false, info.qp_type);
        inner.options = Options { qp_type: info.qp_type, ..listener.options };
        inner.local = Some(info.local);
        inner.peer = Some(info.peer);
        let device_addr =
            DeviceAddr { context: context.clone(), ip: info.local.ip(), opened: false };
        drop(listener);
        inner.attach(&shared, device_addr);
        Some(Self::with(shared, self.handle.port_space, inner))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, IdInner> {
        self.handle.inner.lock()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    pub(super) fn check(&self, allowed: &[IdState]) -> Result<IdState, CmError> {
        let state = self.shared().state().state;
        if allowed.contains(&state) { Ok(state) } else { Err(CmError::State(state)) }
    }

    /// State.
    #[must_use]
    pub fn state(&self) -> IdState {
        self.shared().state().state
    }

    /// Port space.
    #[must_use]
    pub fn port_space(&self) -> PortSpace {
        self.handle.port_space
    }

    /// Program's number (`id->context`), initially 0.
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.handle.user_data.load(Ordering::Acquire)
    }

    /// Sets the program's number.
    pub fn set_user_data(&self, number: u64) {
        self.handle.user_data.store(number, Ordering::Release);
    }

    /// Queue pair type.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.inner().options.qp_type
    }

    /// Device (`id->verbs`), once an address is bound or resolved.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.inner().device_addr.as_ref().map(|own| own.context.clone())
    }

    /// Event channel.
    #[must_use]
    pub fn channel(&self) -> EventChannel {
        self.inner().events.channel.clone()
    }

    /// Local address and port (`rdma_get_local_addr`), if known.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner().local
    }

    /// Peer's address and port (`rdma_get_peer_addr`).
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner().peer
    }

    /// Resolved path (`id->route`); for a request, see [`qp_setup`](Self::qp_setup).
    #[must_use]
    pub fn address_vector(&self) -> Option<AddressVector> {
        self.inner().address_vector().ok()
    }

    /// Path MTU, after route resolution.
    #[must_use]
    pub fn path_mtu(&self) -> Mtu {
        self.inner().path_mtu
    }

    /// Local port (`rdma_get_src_port`), or 0.
    #[must_use]
    pub fn src_port(&self) -> u16 {
        self.local_addr().map_or(0, |address| address.port())
    }

    /// Peer's port (`rdma_get_dst_port`), or 0.
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        self.peer_addr().map_or(0, |address| address.port())
    }

    /// Queues a program's [event](EventKind::User) (`rdma_write_cm_event`).
    pub fn write_event(&self, status: i32, value: u64) {
        self.shared().emit(EventKind::User, Status::User(status), Param::User(value));
    }

    /// Reports a completed name lookup.
    #[doc(hidden)] // C interface
    pub fn report_addrinfo(&self) {
        self.shared().emit(EventKind::AddrinfoResolved, Status::Success, Param::None);
    }

    /// Moves future and queued events to another channel (`rdma_migrate_id`).
    pub fn migrate_id(&self, channel: &EventChannel) {
        let mut inner = self.inner();
        if let Some(own) = &inner.device_addr {
            channel.attach(&own.context, own.opened);
        }
        for context in &inner.listener.devices {
            channel.attach(context, false);
        }
        self.shared().migrate(&channel.inner.queue);
        inner.events.channel = channel.clone();
        inner.events.sync = false;
    }

    /// Makes calls wait, on a private channel (`rdma_migrate_id` to none).
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn make_sync(&self) -> io::Result<()> {
        self.migrate_id(&EventChannel::new()?);
        self.inner().events.sync = true;
        Ok(())
    }
}

impl Drop for IdHandle {
    fn drop(&mut self) {
        let Self { shared, inner, .. } = self;
        let inner = &mut *inner.lock();
        route::unlisten(shared, &inner.listener.devices, false);
        for (group, attached) in std::mem::take(&mut inner.groups) {
            if let Some(queues) = inner.queues.as_ref().filter(|_| attached) {
                let _ = queues.qp.detach_mcast(group.into()); // may be detached already
            }
        }
        if let Some(own) = &inner.device_addr {
            own.context.inner.engine.command_shard(|shard, now| {
                let (adapter, _, dispatcher) = shard.parts::<CmDispatcher>();
                let conn = shared.state().conn.take();
                if let Some(conn) = conn {
                    dispatcher.conns.remove(&conn);
                    adapter.cm_mut().destroy(now, conn);
                }
                dispatcher.detach(shared);
            });
        }
        // requests not taken get no reply
        for raw in shared.extract() {
            let Some(request) = raw.request else { continue };
            let Some(context) = inner.listener.devices.get(request.device) else { continue };
            context.inner.engine.command_shard(|shard, now| {
                let (adapter, _, dispatcher) = shard.parts::<CmDispatcher>();
                dispatcher.conns.remove(&request.conn);
                adapter.cm_mut().destroy(now, request.conn);
            });
        }
    }
}

opaque_debug!(
    CmId,
    |it| port_space: it.handle.port_space, state: it.state(), address: Arc::as_ptr(it.shared())
);

impl PartialEq for CmId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }
}

impl Eq for CmId {}

/// Default acknowledge timeout, code.
pub(super) const ACK_TIMEOUT: u8 = 16;

#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) qp_type: QpType,
    pub(super) tos: u8,
    pub(super) ack_timeout: Option<u8>,
    pub(super) min_rnr_timer: u8,
    pub(super) reuse_addr: bool,
    /// By default, the bound address decides.
    pub(super) afonly: Option<bool>,
}
