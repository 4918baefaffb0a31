use alloc::sync::Arc;

use super::state::QpType;
use crate::{
    addr::{AddressVector, Mtu, QKey},
    defaults::defaults,
    ids::{PdId, Qpn, SrqId},
    mem::Access,
    psn::Psn,
    work::CompletionQueue,
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
pub enum Rts {
    /// A reliable connection.
    Rc(Psn, RequesterAttr),
    /// An unreliable connection.
    Uc(Psn),
    /// A datagram queue pair.
    Ud(Psn),
    /// The sending end of XRC.
    XrcInitiator(Psn, RequesterAttr),
    /// The receiving end of XRC; attributes have no effect.
    XrcTarget {
        /// First PSN.
        sq_psn: Psn,
        /// Acknowledge timeout code, 0..=31.
        timeout: u8,
    },
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
