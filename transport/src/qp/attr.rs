//! What creating, changing and using a queue pair takes, and what can be wrong with it.

use alloc::sync::Arc;
use thiserror::Error;

use super::{
    congestion::CongestionCounters,
    state::{Attribute, QpType, State},
    update::PathMigration,
};
use crate::{
    addr::{AddressVector, Gid, Mtu, QKey, Qpn},
    mem::{Access, PdId},
    psn::Psn,
    work::{CompletionQueue, SrqId},
};

/// The most READs and atomics that a queue pair may have outstanding, either way.
pub const MAX_RD_ATOMIC: u8 = 128;

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

/// What a new queue pair is (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Its service.
    pub qp_type: QpType,
    /// Where its send requests complete.
    pub send_cq: Arc<CompletionQueue>,
    /// Where its receive requests complete; an XRC initiator has none, and does not look at it.
    pub recv_cq: Arc<CompletionQueue>,
    /// A shared receive queue that it receives from, instead of a queue of its own.
    pub srq: Option<SrqId>,
    /// Its sizes; with a shared receive queue those of the receive queue mean nothing.
    pub caps: QpCaps,
    /// Every send request is signaled, whatever its flags say.
    pub sq_sig_all: bool,
    /// Its protection domain.
    pub pd: PdId,
    /// What its peer does otherwise than the specification.
    pub quirks: Quirks,
}

/// Where a peer departs from the specification and cannot be met half-way without knowing. None by
/// default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quirks {
    /// The peer takes FLUSHes as Linux's rxe does: with the ICRC of
    /// [`rxe_flush_icrc`](crate::wire::rxe_flush_icrc), which is sent then (received is either),
    /// and as one of the READs and atomics that may be outstanding.
    pub rxe_flush: bool,
}

/// What RESET→INIT takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Init {
    /// Index into the P_Key table. 0 by default.
    pub pkey_index: u16,
    /// What the peer may do (RC, UC): any of the remote rights. None by default.
    pub access: Access,
    /// The queue key (UD). 0 by default.
    pub qkey: QKey,
}

/// What INIT→RTR takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rtr {
    /// A reliable connection.
    Rc {
        /// The peer's queue pair.
        dest_qpn: Qpn,
        /// The most payload per packet; both ends must use the same.
        path_mtu: Mtu,
        /// The first PSN that the peer sends.
        rq_psn: Psn,
        /// The way to the peer.
        av: AddressVector,
        /// READs and atomics that the peer may have outstanding, 0..=128.
        max_dest_rd_atomic: u8,
        /// Code of the time for which the peer is asked to wait when no receive request is posted,
        /// 0..=31; see [`rnr_timer`](crate::time::rnr_timer).
        min_rnr_timer: u8,
    },
    /// An unreliable connection; everything as above.
    Uc {
        /// The peer's queue pair.
        dest_qpn: Qpn,
        /// The most payload per packet.
        path_mtu: Mtu,
        /// The first PSN that the peer sends. Another one is taken as loss, and the next message
        /// starts anew.
        rq_psn: Psn,
        /// The way to the peer.
        av: AddressVector,
    },
    /// A datagram queue pair needs nothing more.
    Ud,
    /// The sending end of an extended reliable connection; everything as above.
    XrcInitiator {
        /// The peer's target.
        dest_qpn: Qpn,
        /// The most payload per packet; both ends must use the same.
        path_mtu: Mtu,
        /// Asked for by the interface, and without effect: an initiator gets no requests.
        rq_psn: Psn,
        /// The way to the peer.
        av: AddressVector,
    },
    /// The receiving end of an extended reliable connection; everything as for [`Rc`](Self::Rc).
    XrcTarget {
        /// The peer's initiator.
        dest_qpn: Qpn,
        /// The most payload per packet; both ends must use the same.
        path_mtu: Mtu,
        /// The first PSN that the peer sends.
        rq_psn: Psn,
        /// The way to the peer.
        av: AddressVector,
        /// READs and atomics that the peer may have outstanding, 0..=128.
        max_dest_rd_atomic: u8,
        /// Code of the time for which the peer is asked to wait when no receive request is posted,
        /// 0..=31.
        min_rnr_timer: u8,
    },
}

/// What RTR→RTS takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rts {
    /// A reliable connection.
    Rc {
        /// The first PSN sent.
        sq_psn: Psn,
        /// Code of the acknowledge timeout, 0..=31; see [`ack_timeout`](crate::time::ack_timeout).
        timeout: u8,
        /// How often something is sent again without progress, 0..=7.
        retry_cnt: u8,
        /// How often the peer may say "not ready" without progress, 0..=7; 7 means without limit.
        rnr_retry: u8,
        /// READs and atomics outstanding at once, 0..=128; no more than the peer allows.
        max_rd_atomic: u8,
    },
    /// An unreliable connection.
    Uc {
        /// The first PSN sent.
        sq_psn: Psn,
    },
    /// A datagram queue pair.
    Ud {
        /// The first PSN sent.
        sq_psn: Psn,
    },
    /// The sending end of an extended reliable connection; everything as for [`Rc`](Self::Rc).
    XrcInitiator {
        /// The first PSN sent.
        sq_psn: Psn,
        /// Code of the acknowledge timeout, 0..=31.
        timeout: u8,
        /// How often something is sent again without progress, 0..=7.
        retry_cnt: u8,
        /// How often the peer may say "not ready" without progress, 0..=7; 7 means without limit.
        rnr_retry: u8,
        /// READs and atomics outstanding at once, 0..=128; no more than the peer allows.
        max_rd_atomic: u8,
    },
    /// The receiving end of an extended reliable connection. Both are asked for by the interface,
    /// and without effect: a target sends no requests.
    XrcTarget {
        /// The first PSN sent.
        sq_psn: Psn,
        /// Code of the acknowledge timeout, 0..=31.
        timeout: u8,
    },
    /// Back from SQD or SQE, with everything as it was. In RTS it changes nothing but what
    /// [`QpUpdate`](super::QpUpdate) says.
    Resume,
}

/// Why a queue pair cannot be changed as asked. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// There is no such edge.
    #[error("a {qp_type} queue pair cannot go from {from} to {to}")]
    IllegalTransition {
        /// The queue pair's service.
        qp_type: QpType,
        /// Its state.
        from: State,
        /// The state asked for.
        to: State,
    },
    /// SQD can be left only when the send queue has drained.
    #[error("the send queue is still draining")]
    StillDraining,
    /// The attributes are those of another service, or of another edge.
    #[error("these attributes are not for this transition of a {0} queue pair")]
    WrongService(QpType),
    /// One of its completion queues has overflowed and takes nothing more.
    #[error("a completion queue of the queue pair has overflowed")]
    CqOverrun,
    /// No such entry of the P_Key table, or an unused one.
    #[error("P_Key index {0} does not exist or is unused")]
    PKeyIndex(u16),
    /// An attribute that this edge does not take in this service (`EINVAL`).
    #[error("a {qp_type} queue pair takes no {attribute} from {from} to {to}")]
    NotTaken {
        /// The attribute.
        attribute: Attribute,
        /// The queue pair's service.
        qp_type: QpType,
        /// Its state.
        from: State,
        /// The state asked for.
        to: State,
    },
    /// The specification knows this attribute here, this transport does not (`EOPNOTSUPP`).
    #[error("{0} is not supported: there is no automatic path migration here")]
    NotSupported(Attribute),
    /// The queue pair is in another state than the program believes.
    #[error("the queue pair is in {0}, another state than the one given")]
    OtherState(State),
    /// The peer of a connection cannot be a multicast group.
    #[error("{0} is a multicast group; a connection has one peer")]
    MulticastPeer(Gid),
    /// No such entry of the GID table, or one of another address family than the peer's.
    #[error("GID index {0} does not exist or is of another address family than the peer's GID")]
    GidIndex(u16),
    /// More than the port carries.
    #[error("path MTU {} is more than the port's active MTU {}", asked.bytes(), port.bytes())]
    PathMtu {
        /// The path MTU asked for.
        asked: Mtu,
        /// The port's.
        port: Mtu,
    },
    /// A number too large.
    #[error("{what} must not be more than {limit}")]
    Range {
        /// The attribute.
        what: &'static str,
        /// Its greatest value.
        limit: u32,
    },
}

/// Why a request cannot be posted. Nothing has been posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum PostError {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// Nothing can be posted to this queue in this state.
    #[error("nothing can be posted here in state {0}")]
    State(State),
    /// There is no such shared receive queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// The queue pair has no receive queue of its own.
    #[error("the queue pair receives from a shared receive queue; post there")]
    SharedQueue,
    /// An XRC initiator has no receive queue, an XRC target has no queue at all.
    #[error("an {0} queue pair has no such queue")]
    NoSuchQueue(QpType),
    /// A request of an XRC initiator names an XRC SRQ of the peer; no other request does.
    #[error("an XRC initiator's requests, and only those, name an XRC SRQ of the peer")]
    RemoteSrq,
    /// The queue holds as many requests as it can.
    #[error("the queue is full")]
    QueueFull,
    /// More elements than the queue was made for.
    #[error("more than {limit} scatter/gather elements")]
    TooManySges {
        /// Elements allowed.
        limit: u32,
    },
    /// More inline bytes than the queue was made for.
    #[error("more than {limit} bytes inline")]
    InlineTooLong {
        /// Bytes allowed.
        limit: u32,
    },
    /// A READ or an atomic needs a place for its data.
    #[error("a READ or an atomic operation cannot be inline")]
    InlineRead,
    /// A FLUSH, a bind or an invalidation has no bytes.
    #[error("this operation takes no bytes")]
    NoBytes,
    /// Longer than any message may be.
    #[error("a message of more than 2^30 bytes")]
    TooLong,
    /// The address handle belongs to another protection domain than the queue pair.
    #[error("the address handle is of another protection domain than the queue pair")]
    ForeignAddressHandle,
    /// The operation does not exist in this service.
    #[error("a {0} queue pair has no such operation")]
    WrongOperation(QpType),
}

/// What a queue pair tells of itself (`ibv_query_qp`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpInfo {
    /// Its number.
    pub qpn: Qpn,
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: State,
    /// In SQD: whether something that was started is not complete yet.
    pub sq_draining: bool,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// The peer's number (connections, from RTR on).
    pub dest_qpn: Qpn,
    /// Path MTU (connections, from RTR on).
    pub path_mtu: Mtu,
    /// The PSN expected next (connections).
    pub rq_psn: Psn,
    /// The PSN that the next new request gets.
    pub sq_psn: Psn,
    /// What the peer may do.
    pub access: Access,
    /// The queue key (UD).
    pub qkey: QKey,
    /// The way to the peer (connections, from RTR on).
    pub av: Option<AddressVector>,
    /// Code of the acknowledge timeout (RC and XRC, from RTS on).
    pub timeout: u8,
    /// Retries without progress (RC and XRC, from RTS on).
    pub retry_cnt: u8,
    /// Retries of a peer that is not ready (RC and XRC, from RTS on).
    pub rnr_retry: u8,
    /// READs and atomics outstanding at once (RC and XRC, from RTS on).
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding (RC and XRC, from RTR on).
    pub max_dest_rd_atomic: u8,
    /// Code of the time asked for when no receive request is posted (RC and XRC, from RTR on).
    pub min_rnr_timer: u8,
    /// Always [`Migrated`](PathMigration::Migrated).
    pub path_migration: PathMigration,
    /// Sizes.
    pub caps: QpCaps,
    /// Signs of congestion; not of the C API.
    pub congestion: CongestionCounters,
}
