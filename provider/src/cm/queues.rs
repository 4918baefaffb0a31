//! The queue pair of an id with its completion queues.

use roce_transport::{
    mem::Access,
    qp::{Init, ModifyError, QpCaps, QpType, Quirks, Rtr, Rts},
    work::{NotifyKind, Wc},
};

use super::{error::CmError, param::UDP_QKEY};
use crate::{
    CompletionChannel, CompletionQueue, Context, ProtectionDomain, QueuePair, SharedReceiveQueue,
};

/// Attributes of an id's queue pair (`ibv_qp_init_attr`); its type is that of the id.
///
/// ```
/// # use roce_provider::{cm::CmQpAttr, transport::qp::QpCaps};
/// let caps = QpCaps { max_send_wr: 64, max_recv_wr: 64, ..QpCaps::default() };
/// let attr = CmQpAttr { caps, sq_sig_all: true, ..CmQpAttr::default() };
/// ```
#[derive(Clone, Debug, Default)]
pub struct CmQpAttr {
    /// Completion queue of its send requests. Without one the id makes one, as large as the send
    /// queue, with a channel.
    pub send_cq: Option<CompletionQueue>,
    /// Completion queue of its receive requests. Without one the id makes one, as large as the
    /// receive queue, with a channel.
    pub recv_cq: Option<CompletionQueue>,
    /// A shared receive queue that it receives from, instead of a queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// Its sizes.
    pub caps: QpCaps,
    /// True if every send request is signaled, whatever its flags say. False by default.
    pub sq_sig_all: bool,
    /// Deviations of its peer from the specification. None by default.
    pub quirks: Quirks,
}

/// A queue pair with what belongs to it.
pub(super) struct Queues {
    pub(super) qp: QueuePair,
    pub(super) pd: ProtectionDomain,
    pub(super) send: Completions,
    pub(super) recv: Completions,
    pub(super) srq: bool,
}

/// A completion queue, and its channel if the id has made both.
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

    /// The next completion, however long it takes.
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

/// Moves a queue pair from RESET to the state in which requests can be posted.
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

pub(super) const fn is_xrc(qp_type: QpType) -> bool {
    matches!(qp_type, QpType::XrcInitiator | QpType::XrcTarget)
}
