use alloc::boxed::Box;
use core::net::IpAddr;

use super::{
    command::{ConnId, ListenerId},
    message::{PrivateData, Rej, Rep, Req, Rtu, SidrRep, SidrReq},
};

/// Event of a connection or resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnEvent {
    /// REQ; respond with accept, reject or destroy.
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
    /// REP; move the queue pair, then `cm_establish`, reject or destroy.
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
        /// REP on the active side.
        rep: Option<Box<Rep>>,
        /// The RTU's private data on the passive side.
        private_data: Option<Box<PrivateData<{ Rtu::PRIVATE_DATA }>>>,
    },
    /// REJ; the connection is gone.
    Rejected {
        /// Connection.
        conn: ConnId,
        /// REJ.
        rej: Box<Rej>,
    },
    /// No response; the connection or resolution is gone.
    Unreachable(ConnId),
    /// The queue pair could not follow the REP; the connection is gone.
    ConnectError(ConnId),
    /// Disconnected; if by the peer, respond with disconnect or destroy.
    Disconnected(ConnId),
    /// End of the time wait; the connection is gone.
    TimeWaitExit(ConnId),
    /// SIDR_REQ; respond with `sidr_respond` or destroy.
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
    /// SIDR_REP; the resolution is gone.
    SidrReply {
        /// Resolution.
        conn: ConnId,
        /// SIDR_REP, with its status.
        rep: Box<SidrRep>,
    },
}
