//! Requests as a program describes them.

use roce_provider::transport::work::{Data, RecvWr, Remote, SendFlags, SendOp, SendWr, SgeList};

use super::{
    order::{Order, RemoteOperation, RemoteUse},
    watch::Role,
};

#[derive(Debug)]
pub(crate) struct Request {
    pub(super) wr_id: u64,
    pub(super) name: &'static str,
    /// `None`: no memory, or copied.
    pub(super) role: Option<Role>,
    pub(super) sges: SgeList,
    pub(super) is_signaled: bool,
    pub(super) order: Order,
    /// `ibv_ah`; 0: none.
    pub(super) ah: usize,
}

impl Request {
    /// `inline`: sources of inline data.
    pub(crate) fn send(wr: &SendWr, sq_sig_all: bool, inline: Option<SgeList>, ah: usize) -> Self {
        let (name, role, remote) = operation(&wr.op);
        let is_inline = inline.is_some();
        let sges = match (inline, &wr.data) {
            (Some(sges), _) => sges,
            (None, Data::Sges(sges)) => sges.clone(),
            (None, _) => SgeList::default(),
        };
        let length = sges.iter().map(|sge| u64::from(sge.length)).sum();
        let remote = remote.map(|(start, operation)| RemoteUse { start, length, operation });
        let is_fenced = wr.flags.contains(SendFlags::FENCE);
        Self {
            wr_id: wr.wr_id,
            name,
            role: role.filter(|_| !is_inline),
            sges,
            is_signaled: sq_sig_all || wr.flags.contains(SendFlags::SIGNALED),
            order: Order { is_fenced, is_inline, remote, ..Order::default() },
            ah,
        }
    }

    pub(crate) fn receive(wr: &RecvWr) -> Self {
        Self {
            wr_id: wr.wr_id,
            name: "receive",
            role: Some(Role::Receive),
            sges: wr.sges.clone(),
            is_signaled: true,
            order: Order::default(),
            ah: 0,
        }
    }
}

/// Name, local role, and remote use.
const fn operation(op: &SendOp) -> (&'static str, Option<Role>, Option<(Remote, RemoteOperation)>) {
    use RemoteOperation::{Atomic, Read, Write};
    const SEND: Option<Role> = Some(Role::Send);
    const READ: Option<Role> = Some(Role::Read);
    match *op {
        SendOp::Write { remote, immediate: None } => ("RDMA WRITE", SEND, Some((remote, Write))),
        SendOp::Write { remote, .. } => ("RDMA WRITE with immediate", SEND, Some((remote, Write))),
        SendOp::AtomicWrite { remote } => ("ATOMIC WRITE", SEND, Some((remote, Write))),
        SendOp::Read { remote } => ("RDMA READ", READ, Some((remote, Read))),
        SendOp::CompareSwap { remote, .. } => ("compare and swap", READ, Some((remote, Atomic))),
        SendOp::FetchAdd { remote, .. } => ("fetch and add", READ, Some((remote, Atomic))),
        SendOp::Send { immediate: None } | SendOp::SendTo { immediate: None, .. } => {
            ("SEND", SEND, None)
        }
        SendOp::Send { .. } | SendOp::SendTo { .. } => ("SEND with immediate", SEND, None),
        SendOp::SendInvalidate { .. } => ("SEND with invalidate", SEND, None),
        _ => ("request", None, None),
    }
}
