//! States of an id; kinds and results of events.

use std::io;

use derive_more::Display;
use roce_transport::cm::RejectReason;

macro_rules! event_kinds {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal;)*) => {
        /// Kind of an event (`rdma_cm_event_type`).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
        #[display("{}", self.name())]
        #[repr(u8)]
        pub enum EventKind { $($(#[doc = $doc])* $variant,)* }

        impl EventKind {
            /// All kinds, numbered as in C.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// C name (`rdma_event_str`).
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

event_kinds! {
    /// The peer's address is resolved.
    AddrResolved "RDMA_CM_EVENT_ADDR_RESOLVED";
    /// No device leads to the address.
    AddrError "RDMA_CM_EVENT_ADDR_ERROR";
    /// The path MTU is known.
    RouteResolved "RDMA_CM_EVENT_ROUTE_RESOLVED";
    /// The device lost the local address.
    RouteError "RDMA_CM_EVENT_ROUTE_ERROR";
    /// Request for a connection or datagram service, with a new id.
    ConnectRequest "RDMA_CM_EVENT_CONNECT_REQUEST";
    /// The peer accepted; the program moves its queue pair and calls
    /// [`establish`](super::CmId::establish).
    ConnectResponse "RDMA_CM_EVENT_CONNECT_RESPONSE";
    /// The local queue pair failed to move.
    ConnectError "RDMA_CM_EVENT_CONNECT_ERROR";
    /// The peer does not respond, or lacks the datagram service.
    Unreachable "RDMA_CM_EVENT_UNREACHABLE";
    /// The peer refuses.
    Rejected "RDMA_CM_EVENT_REJECTED";
    /// Connection usable, or datagram service known.
    Established "RDMA_CM_EVENT_ESTABLISHED";
    /// The connection ended.
    Disconnected "RDMA_CM_EVENT_DISCONNECTED";
    /// The device is lost.
    DeviceRemoval "RDMA_CM_EVENT_DEVICE_REMOVAL";
    /// Multicast group joined.
    MulticastJoin "RDMA_CM_EVENT_MULTICAST_JOIN";
    /// Multicast join failed.
    MulticastError "RDMA_CM_EVENT_MULTICAST_ERROR";
    /// The device lost the local address.
    AddrChange "RDMA_CM_EVENT_ADDR_CHANGE";
    /// No packet of the ended connection can be in flight.
    TimewaitExit "RDMA_CM_EVENT_TIMEWAIT_EXIT";
    /// Name resolved (C interface).
    AddrinfoResolved "RDMA_CM_EVENT_ADDRINFO_RESOLVED";
    /// Name resolution failed.
    AddrinfoError "RDMA_CM_EVENT_ADDRINFO_ERROR";
    /// [Written](super::CmId::write_event) by the program.
    User "RDMA_CM_EVENT_USER";
}

/// Success, or the cause of failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[non_exhaustive]
pub enum Status {
    /// Success.
    #[display("success")]
    Success,
    /// Local failure: an errno.
    #[display("{}", io::Error::from_raw_os_error(*_0))]
    Errno(i32),
    /// Rejection by the peer.
    Rejected(RejectReason),
    /// Refused datagram service: SIDR_REP status, 1 to 5.
    #[display("datagram service status {_0}")]
    Sidr(u8),
    /// [Written](super::CmId::write_event) by the program.
    #[display("the program's status {_0}")]
    User(i32),
}

impl Status {
    /// C number: 0, a negative errno, or the peer's code.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Errno(errno) => -errno,
            Self::Rejected(reason) => reason.0 as i32,
            Self::Sidr(status) => status as i32,
            Self::User(status) => status,
        }
    }
}

/// State of an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdState {
    /// New.
    Idle,
    /// After [`bind_addr`](super::CmId::bind_addr).
    Bound,
    /// After [`resolve_addr`](super::CmId::resolve_addr).
    AddrResolved,
    /// After [`resolve_route`](super::CmId::resolve_route).
    RouteResolved,
    /// Listening for requests.
    Listening,
    /// The request is sent.
    Connecting,
    /// Request received, response pending.
    RequestReceived,
    /// The peer accepted; the program moves its queue pair.
    ResponseReceived,
    /// Accepted; the peer's confirmation is pending.
    Accepted,
    /// Connected; for datagrams, the peer's queue pair is known.
    Established,
    /// Disconnected.
    Disconnected,
    /// Final state.
    Closed,
}
