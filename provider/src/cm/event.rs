//! What happens to ids, and what comes with it.

use std::fmt;

use roce_transport::{
    addr::{AddressVector, QKey, Qpn},
    cm::{RejectReason, without_padding},
    work::UdDestination,
};

use super::CmId;

macro_rules! event_kinds {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal;)*) => {
        /// What has happened (`rdma_cm_event_type`).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum EventKind { $($(#[doc = $doc])* $variant,)* }

        impl EventKind {
            /// Every kind, in the order of the C API's numbers, which start at 0.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in the C API (`rdma_event_str`).
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

event_kinds! {
    /// The way to an address is known, and the id belongs to a device.
    AddrResolved "RDMA_CM_EVENT_ADDR_RESOLVED";
    /// There is no way to an address.
    AddrError "RDMA_CM_EVENT_ADDR_ERROR";
    /// The way has its path MTU.
    RouteResolved "RDMA_CM_EVENT_ROUTE_RESOLVED";
    /// The way is gone.
    RouteError "RDMA_CM_EVENT_ROUTE_ERROR";
    /// Someone asks a listener for a connection, or for a datagram service; the event's id is new.
    ConnectRequest "RDMA_CM_EVENT_CONNECT_REQUEST";
    /// The peer has accepted; the program moves its queue pair itself and calls
    /// [`establish`](super::CmId::establish).
    ConnectResponse "RDMA_CM_EVENT_CONNECT_RESPONSE";
    /// The peer has accepted, but the own queue pair could not be moved.
    ConnectError "RDMA_CM_EVENT_CONNECT_ERROR";
    /// The peer does not answer, or offers no such datagram service.
    Unreachable "RDMA_CM_EVENT_UNREACHABLE";
    /// The peer refuses.
    Rejected "RDMA_CM_EVENT_REJECTED";
    /// Both sides may use the connection; or the datagram service is known.
    Established "RDMA_CM_EVENT_ESTABLISHED";
    /// The connection is over.
    Disconnected "RDMA_CM_EVENT_DISCONNECTED";
    /// The device is lost.
    DeviceRemoval "RDMA_CM_EVENT_DEVICE_REMOVAL";
    /// A multicast group is joined.
    MulticastJoin "RDMA_CM_EVENT_MULTICAST_JOIN";
    /// A multicast group could not be joined.
    MulticastError "RDMA_CM_EVENT_MULTICAST_ERROR";
    /// The device has lost the id's own address.
    AddrChange "RDMA_CM_EVENT_ADDR_CHANGE";
    /// No packet of a connection that is over can be under way any more.
    TimewaitExit "RDMA_CM_EVENT_TIMEWAIT_EXIT";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Well.
    Success,
    /// The system, or this side, says why not: a number of `errno.h`.
    Errno(i32),
    /// The peer says why not.
    Rejected(RejectReason),
    /// The peer has no such datagram service, or offers it not to us: the status of its SIDR_REP, 1
    /// to 5.
    Sidr(u8),
}

impl Status {
    /// The number in the C API: 0, a negative errno, or what the peer said.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Errno(errno) => -errno,
            Self::Rejected(reason) => reason.0 as i32,
            Self::Sidr(status) => status as i32,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::Errno(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
            Self::Rejected(reason) => reason.fmt(f),
            Self::Sidr(status) => write!(f, "datagram service status {status}"),
        }
    }
}

/// Values of a connection (`rdma_conn_param`): what a program asks for, and, in an event, what the
/// peer does, seen from this side.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnParam {
    /// For the peer's program. At most 56 bytes to connect, 196 to accept; for datagrams 180 and
    /// 136. In an event all bytes that the message has room for, zeros after what the peer gave.
    pub private_data: Vec<u8>,
    /// READs and atomics that this side answers at once, 0..=128; 255 for as many as it can. 16 by
    /// default. What is more than the peer wants to have outstanding is cut in
    /// [`accept`](super::CmId::accept).
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding at once, 0..=128; 255 for as many as it
    /// can. 16 by default. What is more than the peer answers is cut in
    /// [`accept`](super::CmId::accept).
    pub initiator_depth: u8,
    /// Whether the peer heeds credits: only in events. What is given is not sent, since RoCE has no
    /// such flow control.
    pub flow_control: bool,
    /// How often both sides send something again without progress, 0..=7. Only for
    /// [`connect`](super::CmId::connect). 7 by default.
    pub retry_count: u8,
    /// How often the peer sends again when this side is not ready to receive, 0..=7; 7 means
    /// without limit. 7 by default.
    pub rnr_retry_count: u8,
    /// Whether the queue pair receives from a shared receive queue. Only for queue pairs that the
    /// id does not know.
    pub srq: bool,
    /// The queue pair, for ids that have none of their own: the program then moves it itself. In an
    /// event the peer's.
    pub qpn: Option<Qpn>,
}

impl Default for ConnParam {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 16,
            initiator_depth: 16,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qpn: None,
        }
    }
}

/// Values of a datagram service or of a multicast group (`rdma_ud_param`).
#[derive(Clone, PartialEq, Eq)]
pub struct UdParam {
    /// From the peer's program, zeros after what it gave.
    pub private_data: Vec<u8>,
    /// The way to the peer (`ah_attr`).
    pub av: AddressVector,
    /// The peer's queue pair; 0 in a request, which does not emit it.
    pub qpn: Qpn,
    /// The key that it wants; 0 in a request.
    pub qkey: QKey,
}

impl UdParam {
    /// Where to send to, for [`SendWr::send_to`](roce_transport::work::SendWr::send_to) and
    /// [`post_ud_send`](super::CmId::post_ud_send).
    #[must_use]
    pub const fn destination(&self) -> UdDestination {
        UdDestination::new(self.av, self.qpn, self.qkey)
    }
}

impl fmt::Debug for ConnParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnParam")
            .field("private_data", &Used(&self.private_data))
            .field("responder_resources", &self.responder_resources)
            .field("initiator_depth", &self.initiator_depth)
            .field("flow_control", &self.flow_control)
            .field("retry_count", &self.retry_count)
            .field("rnr_retry_count", &self.rnr_retry_count)
            .field("srq", &self.srq)
            .field("qpn", &self.qpn)
            .finish()
    }
}

impl fmt::Debug for UdParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdParam")
            .field("private_data", &Used(&self.private_data))
            .field("av", &self.av)
            .field("qpn", &self.qpn)
            .field("qkey", &self.qkey)
            .finish()
    }
}

/// Private data without the zeros that fill the message.
struct Used<'a>(&'a [u8]);

impl fmt::Debug for Used<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", without_padding(self.0))
    }
}

/// What comes with an event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Param {
    #[default]
    None,
    Conn(ConnParam),
    Ud(UdParam),
    Private(Vec<u8>),
}

/// An event (`rdma_cm_event`). It needs no acknowledgement: dropping it does what
/// `rdma_ack_cm_event` does.
#[derive(Clone)]
pub struct CmEvent {
    pub(super) id: CmId,
    pub(super) listen_id: Option<CmId>,
    pub(super) kind: EventKind,
    pub(super) status: Status,
    pub(super) param: Param,
}

impl CmEvent {
    /// What it happened to. For [`ConnectRequest`](EventKind::ConnectRequest) a new id.
    #[must_use]
    pub const fn id(&self) -> &CmId {
        &self.id
    }

    /// For [`ConnectRequest`](EventKind::ConnectRequest): who listened.
    #[must_use]
    pub const fn listen_id(&self) -> Option<&CmId> {
        self.listen_id.as_ref()
    }

    /// What has happened.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        self.kind
    }

    /// How it went.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The values of a connection: of a request, and of the answer to one.
    #[must_use]
    pub const fn conn(&self) -> Option<&ConnParam> {
        match &self.param {
            Param::Conn(conn) => Some(conn),
            _ => None,
        }
    }

    /// The values of a datagram service: of a request, of the answer to one, and of a multicast
    /// group.
    #[must_use]
    pub const fn ud(&self) -> Option<&UdParam> {
        match &self.param {
            Param::Ud(ud) => Some(ud),
            _ => None,
        }
    }

    /// What the peer's program has sent along: as many bytes as the message has room for, zeros
    /// after what it gave. Empty where no message came.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        match &self.param {
            Param::None => &[],
            Param::Conn(conn) => &conn.private_data,
            Param::Ud(ud) => &ud.private_data,
            Param::Private(data) => data,
        }
    }
}

impl fmt::Debug for CmEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("CmEvent");
        f.field("kind", &self.kind).field("status", &self.status).field("id", &self.id);
        match &self.param {
            Param::None | Param::Private(_) => {}
            Param::Conn(conn) => drop(f.field("conn", conn)),
            Param::Ud(ud) => drop(f.field("ud", ud)),
        }
        f.finish_non_exhaustive()
    }
}
