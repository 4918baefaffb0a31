//! Errors of transitions and posting.

use thiserror::Error;

use super::{
    state::{QpType, State},
    update::Attribute,
};
use crate::addr::{Gid, Mtu};

/// Reason why a transition fails; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// No such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// No such edge.
    #[error("a {qp_type} queue pair cannot go from {from} to {to}")]
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
    #[error("these attributes are not for this transition of a {0} queue pair")]
    WrongService(QpType),
    /// A completion queue overflowed.
    #[error("a completion queue of the queue pair has overflowed")]
    CqOverrun,
    /// The P_Key entry is missing or unused.
    #[error("P_Key index {0} does not exist or is unused")]
    PKeyIndex(u16),
    /// The edge does not take this attribute (`EINVAL`).
    #[error("a {qp_type} queue pair takes no {attribute} from {from} to {to}")]
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
    #[error("{0} is not supported: there is no automatic path migration here")]
    NotSupported(Attribute),
    /// The state differs from the given one.
    #[error("the queue pair is in {0}, another state than the one given")]
    OtherState(State),
    /// A connection's peer is a multicast group.
    #[error("{0} is a multicast group; a connection has one peer")]
    MulticastPeer(Gid),
    /// The GID entry is missing, or of another address family.
    #[error("GID index {0} does not exist or is of another address family than the peer's GID")]
    GidIndex(u16),
    /// The GID entry is of RoCE v1, which is not sent.
    #[error("GID index {0} is an entry of RoCE v1, which is not sent here")]
    RoceV1(u16),
    /// The path MTU exceeds the port's.
    #[error("path MTU {} is more than the port's active MTU {}", asked.bytes(), port.bytes())]
    PathMtu {
        /// The requested path MTU.
        asked: Mtu,
        /// The port's MTU.
        port: Mtu,
    },
    /// A value is too large.
    #[error("{attribute} must not be more than {limit}")]
    Range {
        /// The attribute.
        attribute: Attribute,
        /// Its maximum.
        limit: u8,
    },
}

/// Reason why a completion counter cannot attach.
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
    #[error("a completion counter counts at least one operation")]
    NoOperation,
    /// Another counter counts an operation (`EBUSY`).
    #[error("another completion counter of the queue pair counts one of these operations")]
    Counted,
}

/// Reason why posting fails; nothing has been posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// No posting in this state.
    #[error("nothing can be posted here in state {0}")]
    State(State),
    /// No such shared receive queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// Post to the shared receive queue.
    #[error("the queue pair receives from a shared receive queue; post there")]
    SharedQueue,
    /// XRC initiators have no receive queue, XRC targets no queue.
    #[error("an {0} queue pair has no such queue")]
    NoSuchQueue(QpType),
    /// Only XRC initiators' requests name an XRC SRQ, and all do.
    #[error("an XRC initiator's requests, and only those, name an XRC SRQ of the peer")]
    RemoteSrq,
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The queue's size is 0.
    #[error("the queue was made for 0 requests")]
    QueueOfZero,
    /// Too many SGEs.
    #[error("more than {limit} scatter/gather elements")]
    TooManySges {
        /// SGEs allowed.
        limit: u32,
    },
    /// Too many SGEs for a READ.
    #[error("more than {limit} scatter/gather elements for a READ")]
    TooManyReadSges {
        /// SGEs allowed.
        limit: u32,
    },
    /// No atomics.
    #[error("the adapter has no atomic operations")]
    NoAtomics,
    /// Too many inline bytes.
    #[error("more than {limit} bytes inline")]
    InlineTooLong {
        /// Bytes allowed.
        limit: u32,
    },
    /// A READ or atomic cannot be inline.
    #[error("a READ or an atomic operation cannot be inline")]
    InlineRead,
    /// A FLUSH, bind or invalidation has no bytes.
    #[error("this operation takes no bytes")]
    NoBytes,
    /// The message exceeds 2^30 bytes.
    #[error("a message of more than 2^30 bytes")]
    TooLong,
    /// A UD message needs a destination, any other none; UD has no windows. Other foreign
    /// operations complete in error.
    #[error("a {0} queue pair has no such operation")]
    WrongOperation(QpType),
}

impl PostError {
    pub(crate) const fn full(capacity: u32) -> Self {
        if capacity == 0 { Self::QueueOfZero } else { Self::QueueFull }
    }
}
