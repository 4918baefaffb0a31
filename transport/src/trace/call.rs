use core::fmt;

use thiserror::Error;

use crate::{
    adapter::ObjectError,
    cm::{ConnError, ConnId, RejectReason, ServiceId},
    ids::{Qpn, SrqId},
    qp::{ModifyError, PostError, QpType, State},
    work::{RecvWr, SendFlags, SendOp, SendWr},
};

/// A verb and its main attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a call's comment describes its fields")]
pub enum Call {
    /// `ibv_create_qp`.
    CreateQp(QpType),
    /// `ibv_destroy_qp`.
    DestroyQp,
    /// `ibv_modify_qp` to this state.
    Modify(State),
    /// `ibv_modify_qp` in the same state.
    Update,
    /// `ibv_post_send`: identifier, operation, bytes, flags.
    PostSend { wr_id: u64, op: SendOp, length: u64, flags: SendFlags },
    /// `ibv_post_recv`: identifier, bytes.
    PostRecv { wr_id: u64, length: u64 },
    /// `ibv_post_srq_recv`, at queue pair 0: shared receive queue, identifier, bytes.
    PostSrqRecv { srq: SrqId, wr_id: u64, length: u64 },
    /// `rdma_listen`.
    Listen(ServiceId),
    /// `rdma_connect` of a local queue pair to a service.
    Connect { qpn: Qpn, service: ServiceId },
    /// `rdma_accept` of a connection with a local queue pair.
    Accept { conn: ConnId, qpn: Qpn },
    /// `rdma_establish`.
    Establish(ConnId),
    /// `rdma_reject`.
    Reject(ConnId, RejectReason),
    /// `rdma_disconnect`.
    Disconnect(ConnId),
    /// `rdma_connect` on a datagram id.
    SidrRequest(ServiceId),
    /// `rdma_accept` and `rdma_reject` on a datagram id.
    SidrRespond(ConnId),
}

impl Call {
    pub(crate) fn post_send(wr: &SendWr) -> Self {
        Self::PostSend { wr_id: wr.wr_id, op: wr.op, length: wr.data.length(), flags: wr.flags }
    }

    pub(crate) fn post_recv(wr: &RecvWr) -> Self {
        Self::PostRecv { wr_id: wr.wr_id, length: length(wr) }
    }

    pub(crate) fn post_srq_recv(srq: SrqId, wr: &RecvWr) -> Self {
        Self::PostSrqRecv { srq, wr_id: wr.wr_id, length: length(wr) }
    }
}

fn length(wr: &RecvWr) -> u64 {
    wr.sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// Error of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(transparent)]
#[allow(missing_docs, reason = "each is named after the error it holds")]
pub enum CallError {
    Object(#[from] ObjectError),
    Modify(#[from] ModifyError),
    Post(#[from] PostError),
    Connection(#[from] ConnError),
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateQp(qp_type) => write!(f, "create_qp {qp_type}"),
            Self::DestroyQp => f.write_str("destroy_qp"),
            Self::Modify(state) => write!(f, "modify_qp to {state}"),
            Self::Update => f.write_str("modify_qp"),
            Self::PostSend { wr_id, op, length, flags } => {
                write!(f, "post_send {wr_id}: {} of {length} B", name(op))?;
                for (name, _) in flags.iter_names() {
                    write!(f, ", {name}")?;
                }
                Ok(())
            }
            Self::PostRecv { wr_id, length } => write!(f, "post_recv {wr_id}: {length} B"),
            Self::PostSrqRecv { srq, wr_id, length } => {
                write!(f, "post_srq_recv {wr_id} to {:#x}: {length} B", srq.get())
            }
            Self::Listen(service) => write!(f, "listen {service}"),
            Self::Connect { qpn, service } => write!(f, "connect qp {qpn} to {service}"),
            Self::Accept { conn, qpn } => write!(f, "accept {conn} with qp {qpn}"),
            Self::Establish(conn) => write!(f, "establish {conn}"),
            Self::Reject(conn, reason) => write!(f, "reject {conn}: {reason}"),
            Self::Disconnect(conn) => write!(f, "disconnect {conn}"),
            Self::SidrRequest(service) => write!(f, "connect datagrams to {service}"),
            Self::SidrRespond(conn) => write!(f, "respond to {conn}"),
        }
    }
}

const fn name(op: &SendOp) -> &'static str {
    match op {
        SendOp::Send { immediate: None } | SendOp::SendTo { immediate: None, .. } => "SEND",
        SendOp::Send { .. } | SendOp::SendTo { .. } => "SEND with immediate",
        SendOp::SendInvalidate { .. } => "SEND with invalidate",
        SendOp::Write { immediate: None, .. } => "RDMA WRITE",
        SendOp::Write { .. } => "RDMA WRITE with immediate",
        SendOp::Read { .. } => "RDMA READ",
        SendOp::CompareSwap { .. } => "CmpSwap",
        SendOp::FetchAdd { .. } => "FetchAdd",
        SendOp::AtomicWrite { .. } => "ATOMIC WRITE",
        SendOp::Flush { .. } => "FLUSH",
        SendOp::BindWindow(_) => "bind",
        SendOp::LocalInvalidate { .. } => "local invalidate",
    }
}
