//! Events of connections and of service ID resolutions.

use alloc::boxed::Box;
use core::net::IpAddr;

use super::{
    command::{ConnId, ListenerId},
    message::{PrivateData, Rej, Rep, Req, Rtu, SidrRep, SidrReq},
};

/// An event of a connection, or of a service ID resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnEvent {
    /// A peer requests a connection. Answer with accept, reject or destroy.
    Request {
        /// The listener that the request is for.
        listener: ListenerId,
        /// The new connection.
        conn: ConnId,
        /// The request.
        req: Box<Req>,
        /// Source address of the request.
        remote: IpAddr,
        /// Own address that it came to.
        local: IpAddr,
    },
    /// The peer has accepted a connection whose queue pair the program moves itself. Answer with
    /// `cm_establish`, reject or destroy.
    Reply {
        /// The connection.
        conn: ConnId,
        /// The reply.
        rep: Box<Rep>,
    },
    /// Both sides may use the connection.
    Established {
        /// The connection.
        conn: ConnId,
        /// The peer's reply, on the active side.
        rep: Option<Box<Rep>>,
        /// Private data of the peer's RTU, on the passive side.
        private_data: Option<Box<PrivateData<{ Rtu::PRIVATE_DATA }>>>,
    },
    /// The peer refuses the connection, or withdraws its request or reply. The connection is gone.
    Rejected {
        /// The connection.
        conn: ConnId,
        /// The rejection.
        rej: Box<Rej>,
    },
    /// No answer came. The connection or the resolution is gone.
    Unreachable {
        /// The connection or the resolution.
        conn: ConnId,
    },
    /// The peer accepted, but the local queue pair could not change its state. The peer got a
    /// rejection; the connection is gone.
    ConnectError {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is over, at the request of either side. If of the peer, disconnect or destroy
    /// answers it.
    Disconnected {
        /// The connection.
        conn: ConnId,
    },
    /// No packet of the connection can be under way any more. It is gone.
    TimeWaitExit {
        /// The connection.
        conn: ConnId,
    },
    /// A peer resolves the service ID of a datagram service (SIDR_REQ). Answer with `sidr_respond`
    /// or destroy.
    SidrRequest {
        /// The listener that the request is for.
        listener: ListenerId,
        /// Name of the resolution.
        conn: ConnId,
        /// The request.
        req: Box<SidrReq>,
        /// Source address of the request.
        remote: IpAddr,
        /// Own address that it came to.
        local: IpAddr,
    },
    /// The answer to a service ID resolution request (SIDR_REP). The resolution is gone.
    SidrReply {
        /// Name of the resolution.
        conn: ConnId,
        /// The answer; its status tells if there is such a service.
        rep: Box<SidrRep>,
    },
}
