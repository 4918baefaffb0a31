//! Kinds of events, and how what they report has ended.

use std::fmt;

use roce_transport::cm::RejectReason;

macro_rules! event_kinds {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal;)*) => {
        /// Kind of an event (`rdma_cm_event_type`).
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
    /// The peer's address is resolved, and the id belongs to a device.
    AddrResolved "RDMA_CM_EVENT_ADDR_RESOLVED";
    /// No device leads to the address.
    AddrError "RDMA_CM_EVENT_ADDR_ERROR";
    /// The route is resolved: the path MTU is known.
    RouteResolved "RDMA_CM_EVENT_ROUTE_RESOLVED";
    /// The device has lost the id's own address.
    RouteError "RDMA_CM_EVENT_ROUTE_ERROR";
    /// A peer requests a connection, or a datagram service, from a listener; the event's id is new.
    ConnectRequest "RDMA_CM_EVENT_CONNECT_REQUEST";
    /// The peer has accepted; the program moves its queue pair itself and calls
    /// [`establish`](super::CmId::establish).
    ConnectResponse "RDMA_CM_EVENT_CONNECT_RESPONSE";
    /// The peer has accepted, but the local queue pair could not change its state.
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
    /// The C interface has looked up a name.
    AddrinfoResolved "RDMA_CM_EVENT_ADDRINFO_RESOLVED";
    /// The same in vain.
    AddrinfoError "RDMA_CM_EVENT_ADDRINFO_ERROR";
    /// The program has [written](super::CmId::write_event) it.
    User "RDMA_CM_EVENT_USER";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Success, or the reason of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Status {
    /// Success.
    Success,
    /// Failure on this side: a number of `errno.h`.
    Errno(i32),
    /// Rejection by the peer, with its reason.
    Rejected(RejectReason),
    /// The peer has no such datagram service, or refuses: the status of its SIDR_REP, 1 to 5.
    Sidr(u8),
    /// What the program has [written](super::CmId::write_event).
    User(i32),
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
            Self::User(status) => status,
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
            Self::User(status) => write!(f, "the program's status {status}"),
        }
    }
}
