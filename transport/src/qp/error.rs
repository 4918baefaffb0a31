use thiserror::Error;

use super::{
    state::{QpType, State},
    update::Attribute,
};
use crate::addr::{Gid, Mtu};

/// Transition error; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// No such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// No such edge.
    #[error("{qp_type} queue pairs cannot go from {from} to {to}")]
    IllegalTransition {
        /// Service.
        qp_type: QpType,
        /// Current state.
        from: State,
        /// Requested state.
        to: State,
    },
    /// SQD has not drained.
    #[error("the send queue is still draining")]
    StillDraining,
    /// Attributes of another service or edge.
    #[error("the attributes are of another transition or type than this {0} queue pair's")]
    WrongService(QpType),
    /// A completion queue overflowed.
    #[error("a completion queue of the queue pair has overflowed")]
    CqOverrun,
    /// P_Key entry missing or unused.
    #[error("P_Key index {0} does not exist or is unused")]
    PKeyIndex(u16),
    /// Attribute of another edge (`EINVAL`).
    #[error("{qp_type} queue pairs take no {attribute} from {from} to {to}")]
    NotTaken {
        /// The attribute.
        attribute: Attribute,
        /// Service.
        qp_type: QpType,
        /// Current state.
        from: State,
        /// Requested state.
        to: State,
    },
    /// Specified, but not supported (`EOPNOTSUPP`).
    #[error("{0} is not supported: automatic path migration is missing")]
    NotSupported(Attribute),
    /// Not in the given state.
    #[error("the queue pair is in {0}, not in the given cur_qp_state")]
    OtherState(State),
    /// Multicast peer.
    #[error("{0} is a multicast group; give the unicast GID of the peer")]
    MulticastPeer(Gid),
    /// Missing GID entry, or another address family.
    #[error("GID index {0} does not exist, or its address family is not the peer's")]
    GidIndex(u16),
    /// RoCE v1 GID entry, unable to send.
    #[error("GID index {0} is a RoCE v1 entry, which this link cannot send; use a RoCE v2 entry")]
    RoceV1(u16),
    /// Path MTU above the port's.
    #[error("path MTU {} is more than the port's active MTU {}", asked.bytes(), port.bytes())]
    PathMtu {
        /// The requested path MTU.
        asked: Mtu,
        /// The port's MTU.
        port: Mtu,
    },
    /// Value too large.
    #[error("{attribute} is too large; at most {limit}")]
    Range {
        /// The attribute.
        attribute: Attribute,
        /// Its maximum.
        limit: u8,
    },
}

/// Error of attaching a completion counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum CountError {
    /// No such queue pair (`EINVAL`).
    #[error("no such queue pair")]
    UnknownQp,
    /// Not in RESET or INIT (`EINVAL`).
    #[error("completion counters are attached in RESET or INIT; the queue pair is in {0}")]
    State(State),
    /// No operation (`EINVAL`).
    #[error("a completion counter needs at least one operation")]
    NoOperation,
    /// Another counter counts an operation (`EBUSY`).
    #[error("another completion counter of the queue pair counts one of these operations")]
    Counted,
}

/// Posting error; nothing was posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// No posting in this state.
    #[error("cannot post in state {0}")]
    State(State),
    /// No such shared receive queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// Post to the shared receive queue.
    #[error("the queue pair has a shared receive queue; post to that")]
    SharedQueue,
    /// XRC initiators have no receive queue, XRC targets no queue.
    #[error("{0} queue pairs have no such queue")]
    NoSuchQueue(QpType),
    /// Only XRC initiators' requests name an XRC SRQ, and all do.
    #[error("remote_srqn is for requests of an XRC initiator, which need it")]
    RemoteSrq,
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// Queue of size 0.
    #[error("the queue has 0 entries; create the queue pair with more")]
    QueueOfZero,
    /// Too many SGEs.
    #[error("too many scatter/gather elements; at most {limit}")]
    TooManySges {
        /// SGEs allowed.
        limit: u32,
    },
    /// Too many SGEs for a READ.
    #[error("too many scatter/gather elements; at most {limit} for a READ")]
    TooManyReadSges {
        /// SGEs allowed.
        limit: u32,
    },
    /// No atomics.
    #[error("the adapter has no atomic operations")]
    NoAtomics,
    /// Too many inline bytes.
    #[error("too many inline bytes; at most {limit}")]
    InlineTooLong {
        /// Bytes allowed.
        limit: u32,
    },
    /// READs and atomics cannot be inline.
    #[error("a READ or an atomic operation cannot be inline")]
    InlineRead,
    /// This operation takes no bytes.
    #[error("this operation takes no scatter/gather elements")]
    NoBytes,
    /// The message exceeds 2^30 bytes.
    #[error("the message is longer than 2^30 bytes")]
    TooLong,
    /// UD messages need a destination, others none; UD has no windows.
    #[error("{0} queue pairs have no such operation")]
    WrongOperation(QpType),
}

impl PostError {
    pub(crate) const fn full(capacity: u32) -> Self {
        if capacity == 0 { Self::QueueOfZero } else { Self::QueueFull }
    }
}
