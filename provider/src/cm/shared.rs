//! State and events between engine and handles of an id.

use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    sync::{Arc, MutexGuard, OnceLock, Weak},
};

use roce_transport::{
    addr::AddressVector,
    cm::{ConnId, ServiceId},
    ids::Qpn,
    qp::QpType,
};

use super::{
    kind::{EventKind, IdState, Status},
    param::{ConnParam, Param},
};
use crate::{notify::Notifier, sync::Mutex};

pub(super) struct Shared {
    /// Handle side; unset for an untaken request.
    handle: OnceLock<Weak<dyn Any + Send + Sync>>,
    queue: Mutex<Arc<Notifier<QueuedEvent>>>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) state: IdState,
    pub(super) conn: Option<ConnId>,
    pub(super) qpn: Option<Qpn>,
    /// Active side.
    pub(super) av: Option<AddressVector>,
    /// Listener.
    pub(super) listening: Option<Listening>,
    /// Passive side.
    pub(super) request: Option<RequestInfo>,
}

#[derive(Clone, Copy)]
pub(super) struct Listening {
    pub(super) qp_type: QpType,
    pub(super) service_id: ServiceId,
    pub(super) address: IpAddr,
    pub(super) afonly: bool,
    pub(super) backlog: usize,
}

#[derive(Clone)]
pub(super) struct RequestInfo {
    pub(super) qp_type: QpType,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// `None` for a service ID resolution.
    pub(super) conn: Option<ConnParam>,
}

/// Event in a channel. Holds no handle: a drop leaves the id alone.
pub(super) struct QueuedEvent {
    pub(super) id: Arc<Shared>,
    /// Reported request, until taken.
    pub(super) request: Option<PendingRequest>,
    pub(super) kind: EventKind,
    pub(super) status: Status,
    pub(super) param: Param,
}

pub(super) struct PendingRequest {
    pub(super) listener: Arc<Shared>,
    /// Index of the device in the listener.
    pub(super) device: usize,
    pub(super) conn: ConnId,
}

impl Listening {
    pub(super) fn takes(&self, ip: IpAddr) -> bool {
        if self.address.is_unspecified() {
            !self.afonly || ip.is_ipv4() == self.address.is_ipv4()
        } else {
            ip == self.address
        }
    }
}

impl QueuedEvent {
    /// For a request, the listener.
    pub(super) fn recipient(&self) -> &Arc<Shared> {
        self.request.as_ref().map_or(&self.id, |request| &request.listener)
    }
}

impl Shared {
    pub(super) fn new(queue: Arc<Notifier<QueuedEvent>>, state: State) -> Self {
        Self { handle: OnceLock::new(), queue: Mutex::new(queue), state: Mutex::new(state) }
    }

    pub(super) fn of_request(listener: &Self, conn: ConnId, request: RequestInfo) -> Self {
        let (conn, request) = (Some(conn), Some(request));
        let state = State { conn, request, ..State::new(IdState::RequestReceived) };
        Self::new(listener.queue.lock().clone(), state)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.handle.get()?.upgrade()
    }

    /// Called once.
    pub(super) fn set_handle<H: Send + Sync + 'static>(&self, handle: &Arc<H>) {
        let handle: Weak<H> = Arc::downgrade(handle);
        let _ = self.handle.set(handle);
    }

    /// True if a handle exists or existed.
    pub(super) fn has_had_handle(&self) -> bool {
        self.handle.get().is_some()
    }

    pub(super) fn push_request(&self, event: QueuedEvent) {
        let queue = self.queue.lock();
        *event.id.queue.lock() = queue.clone();
        queue.push(event);
    }

    pub(super) fn emit(self: &Arc<Self>, kind: EventKind, status: Status, param: Param) {
        let event = QueuedEvent { id: self.clone(), request: None, kind, status, param };
        self.queue.lock().push(event);
    }

    /// Removes this request from its listener's channel.
    pub(super) fn withdraw(&self) {
        self.queue.lock().extract(|event| std::ptr::eq(&*event.id, self));
    }

    /// Removes untaken events, and requests to this listener.
    pub(super) fn extract(&self) -> Vec<QueuedEvent> {
        self.queue.lock().extract(|event| self.owns(event))
    }

    fn owns(&self, event: &QueuedEvent) -> bool {
        let is_self = |other: &Arc<Self>| std::ptr::eq(&**other, self);
        is_self(&event.id) || is_self(event.recipient())
    }

    /// Moves queued and future events.
    pub(super) fn migrate(&self, to: &Arc<Notifier<QueuedEvent>>) {
        let mut queue = self.queue.lock();
        for event in queue.extract(|event| self.owns(event)) {
            if !std::ptr::eq(&*event.id, self) {
                *event.id.queue.lock() = to.clone();
            }
            to.push(event);
        }
        *queue = to.clone();
    }
}

impl State {
    pub(super) const fn new(state: IdState) -> Self {
        Self { state, conn: None, qpn: None, av: None, listening: None, request: None }
    }
}
