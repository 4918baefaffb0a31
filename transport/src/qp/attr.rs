use alloc::{sync::Arc, vec::Vec};

use super::{
    error::ModifyError,
    state::{QpType, State},
    update::{Attribute, PathMigration, QpUpdate},
};
use crate::{
    addr::{AddressVector, Mtu, QKey},
    defaults::defaults,
    ids::{PdId, Qpn, SrqId},
    mem::Access,
    psn::Psn,
    work::{CompletionQueue, SendOp},
};

/// Longest message, as on ConnectX: at most half the PSN space at any MTU.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// Outstanding READs and atomics per queue pair, either way.
pub const MAX_RD_ATOMIC: u8 = 128;

defaults! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) RdAtomicLimits {
        requester: u8 = MAX_RD_ATOMIC;
        responder: u8 = MAX_RD_ATOMIC;
    }
}

defaults! {
    /// Queue sizes (`ibv_qp_cap`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub QpCaps {
        /// Outstanding send requests.
        max_send_wr: u32 = 128;
        /// Outstanding receive requests.
        max_recv_wr: u32 = 128;
        /// SGEs per send request.
        max_send_sge: u32 = 4;
        /// SGEs per receive request.
        max_recv_sge: u32 = 4;
        /// Inline bytes per send request.
        max_inline_data: u32 = 64;
    }
}

/// Attributes of a new queue pair (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Service.
    pub qp_type: QpType,
    /// Completion queue of sends.
    pub send_cq: Arc<CompletionQueue>,
    /// Completion queue of receives; an XRC initiator ignores it.
    pub recv_cq: Arc<CompletionQueue>,
    /// Shared receive queue, if any.
    pub srq: Option<SrqId>,
    /// Sizes; `srq` overrides the receive queue's.
    pub caps: QpCaps,
    /// Signals every send request.
    pub sq_sig_all: bool,
    /// Protection domain.
    pub pd: PdId,
    /// Quirks of the peer.
    pub quirks: Quirks,
}

/// A peer's undetectable departures from the specification, default none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quirks {
    /// Handles FLUSH as rxe does: [`rxe_flush_icrc`](crate::wire::rxe_flush_icrc), counted as a
    /// READ.
    pub rxe_flush: bool,
}

/// Attributes of RESET→INIT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Init {
    /// P_Key index, default 0.
    pub pkey_index: u16,
    /// The peer's rights (RC, UC), default none.
    pub access: Access,
    /// Queue key (UD), default 0.
    pub qkey: QKey,
}

/// A connection's peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAttr {
    /// The peer's queue pair number.
    pub dest_qpn: Qpn,
    /// Largest payload per packet; both ends must agree.
    pub path_mtu: Mtu,
    /// The peer's first PSN. Another counts as loss in UC; XRC initiators ignore it.
    pub rq_psn: Psn,
    /// Address vector.
    pub av: AddressVector,
}

/// Responder attributes (RC, XRC).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResponderAttr {
    /// READs and atomics outstanding from the peer, 0..=128.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code, 0..=31; see [`rnr_timer`](crate::time::rnr_timer).
    pub min_rnr_timer: u8,
}

/// Requester attributes (RC, XRC).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequesterAttr {
    /// Acknowledge timeout code, 0..=31; see [`ack_timeout`](crate::time::ack_timeout).
    pub timeout: u8,
    /// Retries without progress, 0..=7.
    pub retry_cnt: u8,
    /// RNR retries without progress, 0..=7; 7 is unlimited.
    pub rnr_retry: u8,
    /// Outstanding READs and atomics, 0..=128, within the peer's limit.
    pub max_rd_atomic: u8,
}

/// Attributes of INIT→RTR.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rtr {
    /// A reliable connection.
    Rc(PeerAttr, ResponderAttr),
    /// An unreliable connection.
    Uc(PeerAttr),
    /// A datagram queue pair.
    Ud,
    /// The sending end of XRC.
    XrcInitiator(PeerAttr),
    /// The receiving end of XRC.
    XrcTarget(PeerAttr, ResponderAttr),
    /// A raw packet queue pair.
    RawPacket,
}

impl Rtr {
    /// Attributes for this type.
    #[must_use]
    pub const fn new(qp_type: QpType, peer: PeerAttr, responder: ResponderAttr) -> Self {
        match qp_type {
            QpType::Rc => Self::Rc(peer, responder),
            QpType::Uc => Self::Uc(peer),
            QpType::Ud => Self::Ud,
            QpType::XrcInitiator => Self::XrcInitiator(peer),
            QpType::XrcTarget => Self::XrcTarget(peer, responder),
            QpType::RawPacket => Self::RawPacket,
        }
    }
}

/// Attributes of RTR→RTS, with the first PSN sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "a type's comment describes its fields")]
pub enum Rts {
    /// A reliable connection.
    Rc(Psn, RequesterAttr),
    /// An unreliable connection.
    Uc(Psn),
    /// A datagram queue pair.
    Ud(Psn),
    /// The sending end of XRC.
    XrcInitiator(Psn, RequesterAttr),
    /// The receiving end of XRC: first PSN, acknowledge timeout code (0..=31). Attributes have no
    /// effect.
    XrcTarget { sq_psn: Psn, timeout: u8 },
    /// A raw packet queue pair.
    RawPacket,
    /// SQD or SQE→RTS, unchanged; from RTS only [`QpUpdate`](super::QpUpdate) applies.
    Resume,
}

impl Rts {
    /// Attributes for this type.
    #[must_use]
    pub const fn new(qp_type: QpType, sq_psn: Psn, requester: RequesterAttr) -> Self {
        match qp_type {
            QpType::Rc => Self::Rc(sq_psn, requester),
            QpType::Uc => Self::Uc(sq_psn),
            QpType::Ud => Self::Ud(sq_psn),
            QpType::XrcInitiator => Self::XrcInitiator(sq_psn, requester),
            QpType::XrcTarget => Self::XrcTarget { sq_psn, timeout: requester.timeout },
            QpType::RawPacket => Self::RawPacket,
        }
    }
}

/// Attributes as given: requester and responder lose derived values on failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reliability {
    pub(super) requester: RequesterAttr,
    pub(super) responder: ResponderAttr,
}

impl Reliability {
    pub(super) const NONE: Self = Self {
        requester: RequesterAttr { timeout: 0, retry_cnt: 0, rnr_retry: 0, max_rd_atomic: 0 },
        responder: ResponderAttr { max_dest_rd_atomic: 0, min_rnr_timer: 0 },
    };

    pub(super) fn updated(self, update: &QpUpdate) -> Self {
        let Self { requester, responder } = self;
        Self {
            requester: RequesterAttr {
                timeout: update.timeout.unwrap_or(requester.timeout),
                retry_cnt: update.retry_cnt.unwrap_or(requester.retry_cnt),
                rnr_retry: update.rnr_retry.unwrap_or(requester.rnr_retry),
                max_rd_atomic: update.max_rd_atomic.unwrap_or(requester.max_rd_atomic),
            },
            responder: ResponderAttr {
                max_dest_rd_atomic: update
                    .max_dest_rd_atomic
                    .unwrap_or(responder.max_dest_rd_atomic),
                min_rnr_timer: update.min_rnr_timer.unwrap_or(responder.min_rnr_timer),
            },
        }
    }

    pub(super) fn check(&self, limits: RdAtomicLimits) -> Result<(), ModifyError> {
        let Self { requester, responder } = self;
        for (attribute, value, limit) in [
            (Attribute::Timeout, requester.timeout, 31),
            (Attribute::RetryCnt, requester.retry_cnt, 7),
            (Attribute::RnrRetry, requester.rnr_retry, 7),
            (Attribute::MaxRdAtomic, requester.max_rd_atomic, limits.requester),
            (Attribute::MaxDestRdAtomic, responder.max_dest_rd_atomic, limits.responder),
            (Attribute::MinRnrTimer, responder.min_rnr_timer, 31),
        ] {
            if value > limit {
                return Err(ModifyError::Range { attribute, limit });
            }
        }
        Ok(())
    }
}

/// Attributes and state of a queue pair (`ibv_query_qp`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct QpInfo {
    /// Queue pair number.
    pub qpn: Qpn,
    /// Service.
    pub qp_type: QpType,
    /// State.
    pub state: State,
    /// SQD with an incomplete request.
    pub sq_draining: bool,
    /// P_Key index.
    pub pkey_index: u16,
    /// The peer's queue pair (connections from RTR).
    pub dest_qpn: Qpn,
    /// Path MTU (connections from RTR).
    pub path_mtu: Mtu,
    /// Next expected PSN (connections).
    pub rq_psn: Psn,
    /// PSN of the next new request.
    pub sq_psn: Psn,
    /// The peer's rights.
    pub access: Access,
    /// Queue key (UD).
    pub qkey: QKey,
    /// Address vector (connections from RTR).
    pub av: Option<AddressVector>,
    /// Requester attributes (RC and XRC from RTS).
    pub requester: RequesterAttr,
    /// Responder attributes (RC and XRC from RTR).
    pub responder: ResponderAttr,
    /// Always [`Migrated`](PathMigration::Migrated).
    pub path_migration: PathMigration,
    /// Sizes.
    pub caps: QpCaps,
    /// Limit of unacknowledged request bytes, plus 768 per packet (RC and XRC); not in C.
    pub window: u64,
    /// Rate limit in bits/s from CNPs (RC and XRC) or lost READ responses; not in C.
    pub rate: Option<u64>,
    /// Congestion counters; not in C.
    pub congestion: CongestionCounters,
}

/// Signs of congestion since reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct CongestionCounters {
    /// Received ECN marks.
    pub ecn_marked: u64,
    /// CNPs sent; UD sends none.
    pub cnp_sent: u64,
    /// CNPs received.
    pub cnp_received: u64,
}

/// A send queue's progress; not in C.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SendQueueInfo {
    /// Oldest unacknowledged PSN (RC and XRC).
    pub oldest_unacked: Psn,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Incomplete requests, oldest first.
    pub requests: Vec<PostedSend>,
}

/// An incomplete send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PostedSend {
    /// Identifier.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Bytes.
    pub length: u32,
    /// First and last PSN, once started.
    pub psns: Option<(Psn, Psn)>,
}
