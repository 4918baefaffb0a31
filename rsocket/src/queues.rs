use std::os::fd::{AsFd, BorrowedFd};

use roce_transport::{qp::QpCaps, work::NotifyKind};

use roce_provider::{
    CompletionChannel, CompletionQueue, ProtectionDomain, QueuePair,
    cm::{CmError, CmId, CmQpAttr},
};

/// A queue pair with its completion queue and channel.
pub(super) struct Queues {
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    channel: CompletionChannel,
    /// Its own: keys of one connection do not work on another.
    pub(super) domain: ProtectionDomain,
}

impl Queues {
    pub(super) fn new(
        id: &CmId,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_inline_data: u32,
    ) -> Result<Self, CmError> {
        let context = id.context().ok_or(CmError::NoDevice)?;
        let domain = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq((max_send_wr + max_recv_wr) as usize, Some(&channel))?;
        let caps =
            QpCaps { max_send_wr, max_recv_wr, max_send_sge: 1, max_recv_sge: 1, max_inline_data };
        let (send_cq, recv_cq) = (Some(cq.clone()), Some(cq.clone()));
        id.create_qp(Some(&domain), &CmQpAttr { send_cq, recv_cq, caps, ..CmQpAttr::default() })?;
        let qp = id.qp().ok_or(CmError::NoQueuePair)?;
        Ok(Self { qp, cq, channel, domain })
    }

    /// Makes the descriptor readable at the next completion.
    pub(super) fn arm(&self) {
        while self.channel.poll().is_some() {}
        self.cq.req_notify(NotifyKind::Next);
    }
}

impl AsFd for Queues {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
