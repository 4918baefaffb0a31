use alloc::boxed::Box;
use core::net::IpAddr;

use super::{
    command::{ConnId, ListenerId},
    message::{PrivateData, Rej, Rep, Req, Rtu, SidrRep, SidrReq},
};

/// Event of a connection or resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "an event's comment describes its fields")]
pub enum ConnEvent {
    /// REQ from `remote` to `local`: listener and new connection; respond with accept, reject or
    /// destroy.
    Request { listener: ListenerId, conn: ConnId, req: Box<Req>, remote: IpAddr, local: IpAddr },
    /// REP; move the queue pair, then `cm_establish`, reject or destroy.
    Reply { conn: ConnId, rep: Box<Rep> },
    /// Established: REP on the active side, the RTU's private data on the passive side.
    Established {
        conn: ConnId,
        rep: Option<Box<Rep>>,
        private_data: Option<Box<PrivateData<{ Rtu::PRIVATE_DATA }>>>,
    },
    /// REJ; the connection is gone.
    Rejected { conn: ConnId, rej: Box<Rej> },
    /// No response; the connection or resolution is gone.
    Unreachable(ConnId),
    /// The queue pair could not follow the REP; the connection is gone.
    ConnectError(ConnId),
    /// Disconnected; if by the peer, respond with disconnect or destroy.
    Disconnected(ConnId),
    /// End of the time wait; the connection is gone.
    TimeWaitExit(ConnId),
    /// SIDR_REQ from `remote` to `local`: listener and resolution; respond with `sidr_respond` or
    /// destroy.
    SidrRequest {
        listener: ListenerId,
        conn: ConnId,
        req: Box<SidrReq>,
        remote: IpAddr,
        local: IpAddr,
    },
    /// SIDR_REP, with its status; the resolution is gone.
    SidrReply { conn: ConnId, rep: Box<SidrRep> },
}
