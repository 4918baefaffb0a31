//! What the engine and the handles of an id have in common.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use roce_transport::{
    addr::{AddressVector, Qpn},
    cm::{ConnId, ServiceId},
    qp::QpType,
};

use super::{
    CmId, ConnParam, EventKind, IdState, Status,
    channel::{Queue, Raw},
    event::Param,
    id::Handle,
};

/// See the [module's documentation](self).
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

impl Shared {
    fn new(queue: Arc<Queue>, state: State) -> Self {
        Self { handle: OnceLock::new(), queue: Mutex::new(queue), state: Mutex::new(state) }
    }

    /// Of a new id.
    pub(super) fn idle(queue: Arc<Queue>) -> Self {
        Self::new(queue, State::new(IdState::Idle))
    }

    /// A request to `listener`, which nobody has looked at yet.
    pub(super) fn of_request(listener: &Self, conn: ConnId, incoming: Incoming) -> Self {
        let state = State {
            conn: Some(conn),
            incoming: Some(incoming),
            ..State::new(IdState::RequestReceived)
        };
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

    /// There is a handle from now on.
    pub(super) fn hand_out(&self, handle: &Arc<Handle>) {
        let _ = self.handle.set(Arc::downgrade(handle)); // once, by whoever makes the handle
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

    pub(super) fn emit(self: &Arc<Self>, kind: EventKind, status: Status, param: Param) {
        self.push(Raw { id: self.clone(), request: None, kind, status, param });
    }

    /// Takes the request that it is out of its listener's channel.
    pub(super) fn withdraw(&self) {
        self.queue().extract(|raw| std::ptr::eq(&*raw.id, self));
    }

    /// Everything that waits to be heard of it.
    pub(super) fn extract(&self) -> Vec<Raw> {
        self.queue().extract(|raw| self.owns(raw))
    }

    fn owns(&self, raw: &Raw) -> bool {
        std::ptr::eq(&*raw.id, self)
            || raw.request.as_ref().is_some_and(|request| std::ptr::eq(&*request.listener, self))
    }

    /// Its events come elsewhere from now on, those that were not taken, too.
    pub(super) fn migrate(&self, to: &Arc<Queue>) {
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
