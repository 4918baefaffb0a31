use crate::{trace::Call, work::WcOpcode};

/// A posted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Of the send queue, with its `wr_id`.
    Send(u64),
    /// Of the receive queue, with its `wr_id`.
    Receive(u64),
}

impl Request {
    /// The request that a call has posted to its queue pair.
    #[must_use]
    pub const fn posted_by(call: &Call) -> Option<Self> {
        match *call {
            Call::PostSend { wr_id, .. } => Some(Self::Send(wr_id)),
            Call::PostRecv { wr_id, .. } => Some(Self::Receive(wr_id)),
            _ => None,
        }
    }

    /// The request of a successful completion.
    #[must_use]
    pub const fn completed(wr_id: u64, opcode: WcOpcode) -> Self {
        match opcode {
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => Self::Receive(wr_id),
            _ => Self::Send(wr_id),
        }
    }
}
