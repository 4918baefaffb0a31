use alloc::boxed::Box;
use core::net::IpAddr;

use super::{
    command::{ConnId, ListenerId},
    message::{PrivateData, Rej, Rep, Req, Rtu, SidrRep, SidrReq},
};

/// An event of a connection or service ID resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnEvent {
    /// A REQ. Respond with accept, reject or destroy.
    Request {
        /// Listener.
        listener: ListenerId,
        /// New connection.
        conn: ConnId,
        /// REQ.
        req: Box<Req>,
        /// Source address.
        remote: IpAddr,
        /// Local address.
        local: IpAddr,
    },
    /// A REP; the program moves the queue pair, then calls `cm_establish`, reject or destroy.
    Reply {
        /// Connection.
        conn: ConnId,
        /// REP.
        rep: Box<Rep>,
    },
    /// Established.
    Established {
        /// Connection.
        conn: ConnId,
        /// REP, on the active side.
        rep: Option<Box<Rep>>,
        /// Private data of the RTU, on the passive side.
        private_data: Option<Box<PrivateData<{ Rtu::PRIVATE_DATA }>>>,
    },
    /// The peer rejects or withdraws; the connection is gone.
    Rejected {
        /// Connection.
        conn: ConnId,
        /// REJ.
        rej: Box<Rej>,
    },
    /// No response; the connection or resolution is gone.
    Unreachable {
        /// Connection or resolution.
        conn: ConnId,
    },
    /// The local queue pair could not follow a REP; the peer got a REJ, the connection is gone.
    ConnectError {
        /// Connection.
        conn: ConnId,
    },
    /// Disconnected by either side; if by the peer, respond with disconnect or destroy.
    Disconnected {
        /// Connection.
        conn: ConnId,
    },
    /// End of the time wait; the connection is gone.
    TimeWaitExit {
        /// Connection.
        conn: ConnId,
    },
    /// A SIDR_REQ. Respond with `sidr_respond` or destroy.
    SidrRequest {
        /// Listener.
        listener: ListenerId,
        /// Resolution.
        conn: ConnId,
        /// SIDR_REQ.
        req: Box<SidrReq>,
        /// Source address.
        remote: IpAddr,
        /// Local address.
        local: IpAddr,
    },
    /// A SIDR_REP; the resolution is gone.
    SidrReply {
        /// Resolution.
        conn: ConnId,
        /// SIDR_REP, with its status.
        rep: Box<SidrRep>,
    },
}
