//! What a program hears of its connections.

use alloc::boxed::Box;
use core::net::IpAddr;

use super::{
    command::ListenerId,
    connection::ConnId,
    message::{PrivateData, Rej, Rep, Req, SidrRep, SidrReq},
};

/// What a program hears of its connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// Someone wants to connect. Answer with accept, reject or destroy.
    Request {
        /// Who listens.
        listener: ListenerId,
        /// The new connection.
        conn: ConnId,
        /// The request.
        req: Box<Req>,
        /// Where it came from.
        remote: IpAddr,
        /// Which address of ours it came to.
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
        /// What came with the peer's RTU, on the passive side.
        private_data: Option<Box<PrivateData<224>>>,
    },
    /// The peer does not want to, or not any more. The connection is gone.
    Rejected {
        /// The connection.
        conn: ConnId,
        /// The rejection.
        rej: Box<Rej>,
    },
    /// No answer came. The connection is gone.
    Unreachable {
        /// The connection.
        conn: ConnId,
    },
    /// The peer accepted, but the own queue pair could not be moved. The peer has been told; the
    /// connection is gone.
    ConnectError {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is over: either side wanted so. If the peer did, disconnect or destroy
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
    /// Someone asks for a datagram service. Answer with `sidr_respond` or destroy.
    SidrRequest {
        /// Who listens.
        listener: ListenerId,
        /// Names the question.
        conn: ConnId,
        /// The question.
        req: Box<SidrReq>,
        /// Where it came from.
        remote: IpAddr,
        /// Which address of ours it came to.
        local: IpAddr,
    },
    /// The answer to a question. It is gone.
    SidrReply {
        /// The question.
        conn: ConnId,
        /// The answer; its status tells whether there is such a service.
        rep: Box<SidrRep>,
    },
}
