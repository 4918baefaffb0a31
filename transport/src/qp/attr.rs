//! Attributes of a queue pair: of creating it and of its transitions.

use alloc::sync::Arc;

use super::state::QpType;
use crate::{
    addr::{AddressVector, Mtu, QKey},
    ids::{PdId, Qpn, SrqId},
    mem::Access,
    psn::Psn,
    work::CompletionQueue,
};

/// The longest message, in bytes: 2^30, as ConnectX has it. Its packets stay within half of the PSN
/// space at every MTU.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// The most READs and atomics that a queue pair may have outstanding, either way.
pub const MAX_RD_ATOMIC: u8 = 128;

/// The most READs and atomics of a queue pair that an adapter grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RdAtomicLimits {
    pub(crate) requester: u8,
    pub(crate) responder: u8,
}

impl Default for RdAtomicLimits {
    fn default() -> Self {
        Self { requester: MAX_RD_ATOMIC, responder: MAX_RD_ATOMIC }
    }
}

/// Sizes of a queue pair's queues (`ibv_qp_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpCaps {
    /// Send requests outstanding at once.
    pub max_send_wr: u32,
    /// Receive requests outstanding at once.
    pub max_recv_wr: u32,
    /// Elements in a send request's list.
    pub max_send_sge: u32,
    /// Elements in a receive request's list.
    pub max_recv_sge: u32,
    /// Bytes that a send request can carry inline.
    pub max_inline_data: u32,
}

impl Default for QpCaps {
    /// 128 requests each way, four elements, 64 bytes inline.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        }
    }
}

/// Attributes of a new queue pair (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Its service.
    pub qp_type: QpType,
    /// Completion queue of its send requests.
    pub send_cq: Arc<CompletionQueue>,
    /// Completion queue of its receive requests; an XRC initiator has none and ignores it.
    pub recv_cq: Arc<CompletionQueue>,
    /// A shared receive queue that it receives from, instead of a queue of its own.
    pub srq: Option<SrqId>,
    /// Its sizes; with a shared receive queue those of the receive queue mean nothing.
    pub caps: QpCaps,
    /// Every send request is signaled, whatever its flags say.
    pub sq_sig_all: bool,
    /// Its protection domain.
    pub pd: PdId,
    /// Departures of its peer from the specification.
    pub quirks: Quirks,
}

/// Departures of a peer from the specification that the adapter cannot detect by itself. None by
/// default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quirks {
    /// The peer takes FLUSHes as Linux's rxe does. They are sent with the ICRC of
    /// [`rxe_flush_icrc`](crate::wire::rxe_flush_icrc) (either is received), and count as
    /// outstanding READs and atomics.
    pub rxe_flush: bool,
}

/// Attributes of the transition RESET→INIT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Init {
    /// Index into the P_Key table. 0 by default.
    pub pkey_index: u16,
    /// Rights of the peer (RC, UC): any of the remote rights. None by default.
    pub access: Access,
    /// The queue key (UD). 0 by default.
    pub qkey: QKey,
}

/// The peer of a connection, and the way to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAttr {
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// The most payload per packet; both ends must use the same.
    pub path_mtu: Mtu,
    /// The first PSN that the peer sends. In UC another PSN counts as loss, until the next message.
    /// Without effect on an XRC initiator, which gets no requests.
    pub rq_psn: Psn,
    /// The way to the peer.
    pub av: AddressVector,
}

/// Attributes of the end of a reliable connection that answers requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResponderAttr {
    /// READs and atomics that the peer may have outstanding, 0..=128.
    pub max_dest_rd_atomic: u8,
    /// Code of the time for which the peer is asked to wait when no receive request is posted,
    /// 0..=31; see [`rnr_timer`](crate::time::rnr_timer).
    pub min_rnr_timer: u8,
}

/// Attributes of the end of a reliable connection that sends requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequesterAttr {
    /// Code of the acknowledge timeout, 0..=31; see [`ack_timeout`](crate::time::ack_timeout).
    pub timeout: u8,
    /// Number of times that something is sent again without progress, 0..=7.
    pub retry_cnt: u8,
    /// Number of times that the peer may say "not ready" without progress, 0..=7; 7 means without
    /// limit.
    pub rnr_retry: u8,
    /// READs and atomics outstanding at once, 0..=128; no more than the peer allows.
    pub max_rd_atomic: u8,
}

/// Attributes of the transition INIT→RTR.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rtr {
    /// A reliable connection.
    Rc(PeerAttr, ResponderAttr),
    /// An unreliable connection.
    Uc(PeerAttr),
    /// A datagram queue pair needs nothing more.
    Ud,
    /// The sending end of an extended reliable connection.
    XrcInitiator(PeerAttr),
    /// The receiving end of an extended reliable connection.
    XrcTarget(PeerAttr, ResponderAttr),
    /// A queue pair of raw packets has no peer and no numbers.
    RawPacket,
}

impl Rtr {
    /// The attributes, of these, that a queue pair of this type takes.
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

/// Attributes of the transition RTR→RTS. Each service of the transport takes the first PSN that is
/// sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rts {
    /// A reliable connection.
    Rc(Psn, RequesterAttr),
    /// An unreliable connection.
    Uc(Psn),
    /// A datagram queue pair.
    Ud(Psn),
    /// The sending end of an extended reliable connection.
    XrcInitiator(Psn, RequesterAttr),
    /// The receiving end of an extended reliable connection. The interface asks for both, and they
    /// are without effect: a target sends no requests.
    XrcTarget {
        /// The first PSN sent.
        sq_psn: Psn,
        /// Code of the acknowledge timeout, 0..=31.
        timeout: u8,
    },
    /// A queue pair of raw packets numbers nothing.
    RawPacket,
    /// Back from SQD or SQE, with everything as it was. In RTS it changes nothing but what
    /// [`QpUpdate`](super::QpUpdate) says.
    Resume,
}

impl Rts {
    /// The attributes, of these, that a queue pair of this type takes.
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
