//! Events of ids.

use roce_transport::explain::{Explain, Reason};

use super::{
    id::CmId,
    kind::{EventKind, Status},
    param::{ConnParam, Param, UdParam},
};
use crate::diagnosis;

/// Event (`rdma_cm_event`), acknowledged on drop (`rdma_ack_cm_event`).
#[derive(Clone, Debug)]
pub struct CmEvent {
    pub(super) id: CmId,
    pub(super) listen_id: Option<CmId>,
    pub(super) kind: EventKind,
    pub(super) status: Status,
    pub(super) param: Param,
}

impl CmEvent {
    /// Id of the event; new for [`ConnectRequest`](EventKind::ConnectRequest).
    #[must_use]
    pub const fn id(&self) -> &CmId {
        &self.id
    }

    /// Listening id of a [`ConnectRequest`](EventKind::ConnectRequest).
    #[must_use]
    pub const fn listen_id(&self) -> Option<&CmId> {
        self.listen_id.as_ref()
    }

    pub(super) fn explain(&self) {
        let is_failure = !matches!(self.status, Status::Success | Status::User(_));
        if !is_failure && self.kind != EventKind::DeviceRemoval {
            return;
        }
        let subject = match self.id.peer_addr() {
            Some(peer) => format!("{}, {peer}", self.kind),
            None => self.kind.to_string(),
        };
        let Some(context) = self.id.context() else {
            // the environment decides
            return diagnosis::explain_call(&subject, || self.reason());
        };
        if let Some(diagnosis) = &context.inner.engine.diagnosis {
            diagnosis.report_call(None, &subject, self.reason());
        }
    }

    fn reason(&self) -> Reason {
        let of_kind = self.kind.explain();
        match (self.kind, self.status) {
            (_, Status::Success | Status::User(_)) => of_kind,
            // the kind says more than the errno
            (
                EventKind::DeviceRemoval | EventKind::AddrChange | EventKind::RouteError,
                status @ Status::Errno(_),
            ) => Reason { advice: of_kind.advice, ..status.explain() },
            (_, status) => status.explain(),
        }
    }

    /// Kind.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        self.kind
    }

    /// Success, or the cause of failure.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Connection values of a request or response.
    #[must_use]
    pub const fn conn(&self) -> Option<&ConnParam> {
        if let Param::Conn(conn) = &self.param { Some(conn) } else { None }
    }

    /// Values of a datagram service or multicast group.
    #[must_use]
    pub const fn ud(&self) -> Option<&UdParam> {
        if let Param::Ud(ud) = &self.param { Some(ud) } else { None }
    }

    /// Program's value of a [`User`](EventKind::User) event.
    #[must_use]
    pub const fn user_value(&self) -> Option<u64> {
        if let Param::User(value) = self.param { Some(value) } else { None }
    }

    /// Peer's private data: the full field, zero-padded; empty without a message.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        match &self.param {
            Param::None | Param::User(_) => &[],
            Param::Conn(conn) => &conn.private_data,
            Param::Ud(ud) => &ud.private_data,
            Param::Private(data) => data,
        }
    }
}
