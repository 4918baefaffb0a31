//! Queue pair and completion queues of an id.

use roce_transport::{
    cm::PortSpace,
    mem::Access,
    qp::{Init, ModifyError, QpCaps, QpType, Quirks, Rtr, Rts},
    work::{NotifyKind, Wc},
};

use super::{error::CmError, param::UDP_QKEY};
use crate::{
    CompletionChannel, CompletionQueue, Context, ProtectionDomain, QueuePair, SharedReceiveQueue,
};

/// Attributes of an id's queue pair (`ibv_qp_init_attr`).
///
/// ```
/// # use roce_provider::{cm::CmQpAttr, transport::qp::QpCaps};
/// let caps = QpCaps { max_send_wr: 64, max_recv_wr: 64, ..QpCaps::default() };
/// let attr = CmQpAttr { caps, sq_sig_all: true, ..CmQpAttr::default() };
/// ```
#[derive(Clone, Debug, Default)]
pub struct CmQpAttr {
    /// Send completion queue; by default created with a channel, as large as the send queue.
    pub send_cq: Option<CompletionQueue>,
    /// Receive completion queue, likewise.
    pub recv_cq: Option<CompletionQueue>,
    /// Shared receive queue, instead of a private one.
    pub srq: Option<SharedReceiveQueue>,
    /// Queue sizes.
    pub caps: QpCaps,
    /// Signals every send request.
    pub sq_sig_all: bool,
    /// Peer's deviations from the specification.
    pub quirks: Quirks,
}

pub(super) struct Queues {
    pub(super) qp: QueuePair,
    pub(super) pd: ProtectionDomain,
    pub(super) send: Completions,
    pub(super) recv: Completions,
    pub(super) srq: bool,
}

/// Completion queue, with its channel if the id created both.
#[derive(Clone)]
pub(super) struct Completions {
    pub(super) cq: CompletionQueue,
    pub(super) channel: Option<CompletionChannel>,
}

impl Completions {
    pub(super) fn new(
        context: &Context,
        given: Option<&CompletionQueue>,
        size: u32,
    ) -> Result<Self, CmError> {
        if let Some(cq) = given {
            return Ok(Self { cq: cq.clone(), channel: None });
        }
        let channel = context.create_channel()?;
        let cq = context.create_cq(size.max(1) as usize, Some(&channel))?;
        Ok(Self { cq, channel: Some(channel) })
    }

    /// Waits without limit.
    pub(super) fn next(&self) -> Result<Wc, CmError> {
        loop {
            if let Some(wc) = self.cq.poll_one() {
                return Ok(wc);
            }
            let Some(channel) = &self.channel else { continue };
            self.cq.req_notify(NotifyKind::Next);
            if let Some(wc) = self.cq.poll_one() {
                return Ok(wc);
            }
            channel.wait(None)?;
        }
    }
}

/// From RESET to INIT, UD to RTS.
pub(super) fn prepare(qp: &QueuePair) -> Result<(), ModifyError> {
    if qp.query().qp_type == QpType::Ud {
        qp.to_init(Init { qkey: UDP_QKEY, ..Init::default() })?;
        qp.to_rtr(Rtr::Ud)?;
        return qp.to_rts(Rts::Ud(qp.context().random_psn()));
    }
    let access = Access::REMOTE_CHANGE
        | Access::REMOTE_READ
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT;
    qp.to_init(Init { access, ..Init::default() })
}

/// Of a port space's ids, by default.
pub(super) const fn default_qp_type(port_space: PortSpace) -> QpType {
    match port_space {
        PortSpace::Tcp | PortSpace::Ib => QpType::Rc,
        PortSpace::Udp | PortSpace::Ipoib => QpType::Ud,
    }
}

pub(super) const fn is_xrc(qp_type: QpType) -> bool {
    matches!(qp_type, QpType::XrcInitiator | QpType::XrcTarget)
}
