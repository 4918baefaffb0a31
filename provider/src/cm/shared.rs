//! State of an id that the engine and the id's handles share, and events from the one to the
//! others.

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
    kind::{EventKind, Status},
    param::{ConnParam, Param},
    queue::Queue,
    state::IdState,
};
use crate::sync::Mutex;

/// State of an id that the engine and the id's handles share.
pub(super) struct Shared {
    /// The handles' side, whose type is not known here. Not set for a request that the program has
    /// not taken yet.
    handle: OnceLock<Weak<dyn Any + Send + Sync>>,
    queue: Mutex<Arc<Queue<QueuedEvent>>>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) state: IdState,
    pub(super) conn: Option<ConnId>,
    /// Own queue pair.
    pub(super) qpn: Option<Qpn>,
    /// Path to the peer, of an active side.
    pub(super) av: Option<AddressVector>,
    /// Requests wanted, of a listener.
    pub(super) listening: Option<Listening>,
    /// Request that a passive side has got.
    pub(super) request: Option<RequestInfo>,
}

/// Requests that a listener wants.
#[derive(Clone, Copy)]
pub(super) struct Listening {
    pub(super) qp_type: QpType,
    pub(super) service_id: ServiceId,
    /// Address that the id is bound to.
    pub(super) address: IpAddr,
    pub(super) afonly: bool,
    pub(super) backlog: usize,
}

/// Addresses and values of a request that has come.
#[derive(Clone)]
pub(super) struct RequestInfo {
    pub(super) qp_type: QpType,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// `None` for a service ID resolution.
    pub(super) conn: Option<ConnParam>,
}

/// An event in a channel. It holds no handle, so that to drop it does nothing to an id.
pub(super) struct QueuedEvent {
    pub(super) id: Arc<Shared>,
    /// The request that it reports, if the program has not taken it yet.
    pub(super) request: Option<PendingRequest>,
    pub(super) kind: EventKind,
    pub(super) status: Status,
    pub(super) param: Param,
}

/// A request that the program has not taken yet.
pub(super) struct PendingRequest {
    pub(super) listener: Arc<Shared>,
    /// Index of its device among the listener's.
    pub(super) device: usize,
    pub(super) conn: ConnId,
}

impl Listening {
    /// True if requests to this address are wanted.
    pub(super) fn takes(&self, ip: IpAddr) -> bool {
        if self.address.is_unspecified() {
            !self.afonly || ip.is_ipv4() == self.address.is_ipv4()
        } else {
            ip == self.address
        }
    }
}

impl QueuedEvent {
    /// The id that gets the event: for a request, the listener.
    pub(super) fn recipient(&self) -> &Arc<Shared> {
        self.request.as_ref().map_or(&self.id, |request| &request.listener)
    }
}

impl Shared {
    fn new(queue: Arc<Queue<QueuedEvent>>, state: State) -> Self {
        Self { handle: OnceLock::new(), queue: Mutex::new(queue), state: Mutex::new(state) }
    }

    /// State of a new id.
    pub(super) fn idle(queue: Arc<Queue<QueuedEvent>>) -> Self {
        Self::new(queue, State::new(IdState::Idle))
    }

    /// State of a request to `listener` that the program has not taken yet.
    pub(super) fn of_request(listener: &Self, conn: ConnId, request: RequestInfo) -> Self {
        let state = State {
            conn: Some(conn),
            request: Some(request),
            ..State::new(IdState::RequestReceived)
        };
        Self::new(listener.queue().clone(), state)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn queue(&self) -> MutexGuard<'_, Arc<Queue<QueuedEvent>>> {
        self.queue.lock()
    }

    /// The handles' side, as long as there is a handle.
    pub(super) fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.handle.get()?.upgrade()
    }

    /// Sets the handles' side: there is a handle from now on. To be called once.
    pub(super) fn set_handle<H: Send + Sync + 'static>(&self, handle: &Arc<H>) {
        let handle: Weak<H> = Arc::downgrade(handle);
        let _ = self.handle.set(handle);
    }

    /// True if there is, or was, a handle.
    pub(super) fn has_had_handle(&self) -> bool {
        self.handle.get().is_some()
    }

    pub(super) fn push(&self, event: QueuedEvent) {
        self.queue().push(event);
    }

    /// Reports a request to this listener.
    pub(super) fn push_request(&self, event: QueuedEvent) {
        let queue = self.queue();
        *event.id.queue() = queue.clone();
        queue.push(event);
    }

    pub(super) fn emit(self: &Arc<Self>, kind: EventKind, status: Status, param: Param) {
        self.push(QueuedEvent { id: self.clone(), request: None, kind, status, param });
    }

    /// Takes the request that this is out of its listener's channel.
    pub(super) fn withdraw(&self) {
        self.queue().extract(|event| std::ptr::eq(&*event.id, self));
    }

    /// Takes out all its events, and requests to it, that the program has not taken.
    pub(super) fn extract(&self) -> Vec<QueuedEvent> {
        self.queue().extract(|event| self.owns(event))
    }

    fn owns(&self, event: &QueuedEvent) -> bool {
        let is_self = |other: &Arc<Self>| std::ptr::eq(&**other, self);
        is_self(&event.id) || is_self(event.recipient())
    }

    /// Moves its events to another queue, those that come and those that were not taken.
    pub(super) fn migrate(&self, to: &Arc<Queue<QueuedEvent>>) {
        let mut queue = self.queue();
        for event in queue.extract(|event| self.owns(event)) {
            if !std::ptr::eq(&*event.id, self) {
                *event.id.queue() = to.clone();
            }
            to.push(event);
        }
        *queue = to.clone();
    }
}

impl State {
    const fn new(state: IdState) -> Self {
        Self { state, conn: None, qpn: None, av: None, listening: None, request: None }
    }
}
