//! Errors of transitions and of posting.

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
        /// Service of the queue pair.
        qp_type: QpType,
        /// Its state.
        from: State,
        /// The requested state.
        to: State,
    },
    /// SQD ends only after the send queue has drained.
    #[error("the send queue is still draining")]
    StillDraining,
    /// The attributes belong to another service or edge.
    #[error("these attributes are not for this transition of a {0} queue pair")]
    WrongService(QpType),
    /// A completion queue has overflowed.
    #[error("a completion queue of the queue pair has overflowed")]
    CqOverrun,
    /// The P_Key entry does not exist or is unused.
    #[error("P_Key index {0} does not exist or is unused")]
    PKeyIndex(u16),
    /// The service's edge does not take this attribute (`EINVAL`).
    #[error("a {qp_type} queue pair takes no {attribute} from {from} to {to}")]
    NotTaken {
        /// The attribute.
        attribute: Attribute,
        /// Service of the queue pair.
        qp_type: QpType,
        /// Its state.
        from: State,
        /// The requested state.
        to: State,
    },
    /// The specification allows this attribute here; this transport does not (`EOPNOTSUPP`).
    #[error("{0} is not supported: there is no automatic path migration here")]
    NotSupported(Attribute),
    /// The queue pair is not in the state given.
    #[error("the queue pair is in {0}, another state than the one given")]
    OtherState(State),
    /// A connection's peer is a multicast group.
    #[error("{0} is a multicast group; a connection has one peer")]
    MulticastPeer(Gid),
    /// The GID entry does not exist, or its address family differs from the peer's.
    #[error("GID index {0} does not exist or is of another address family than the peer's GID")]
    GidIndex(u16),
    /// The GID entry is of RoCE v1, which has no UDP header and is not sent.
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

/// Reason why a completion counter cannot be attached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum CountError {
    /// No such queue pair (`EINVAL`).
    #[error("no such queue pair")]
    UnknownQp,
    /// The queue pair may have been used (`EINVAL`).
    #[error("completion counters are attached in RESET or INIT; the queue pair is in {0}")]
    State(State),
    /// No operation is named (`EINVAL`).
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
    /// The queue accepts nothing in this state.
    #[error("nothing can be posted here in state {0}")]
    State(State),
    /// No such shared receive queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// The queue pair uses a shared receive queue.
    #[error("the queue pair receives from a shared receive queue; post there")]
    SharedQueue,
    /// XRC initiators have no receive queue, XRC targets no queue.
    #[error("an {0} queue pair has no such queue")]
    NoSuchQueue(QpType),
    /// Exactly the requests of an XRC initiator name an XRC SRQ of the peer.
    #[error("an XRC initiator's requests, and only those, name an XRC SRQ of the peer")]
    RemoteSrq,
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The queue's size is 0.
    #[error("the queue was made for 0 requests")]
    QueueOfZero,
    /// More SGEs than the queue's limit.
    #[error("more than {limit} scatter/gather elements")]
    TooManySges {
        /// SGEs allowed.
        limit: u32,
    },
    /// More SGEs than the adapter's READ limit.
    #[error("more than {limit} scatter/gather elements for a READ")]
    TooManyReadSges {
        /// SGEs allowed.
        limit: u32,
    },
    /// The adapter has no atomics.
    #[error("the adapter has no atomic operations")]
    NoAtomics,
    /// More inline bytes than the queue's limit.
    #[error("more than {limit} bytes inline")]
    InlineTooLong {
        /// Bytes allowed.
        limit: u32,
    },
    /// A READ or atomic cannot be inline.
    #[error("a READ or an atomic operation cannot be inline")]
    InlineRead,
    /// A FLUSH, bind or invalidation carries no bytes.
    #[error("this operation takes no bytes")]
    NoBytes,
    /// The message exceeds 2^30 bytes.
    #[error("a message of more than 2^30 bytes")]
    TooLong,
    /// A UD message needs a destination, another none; UD cannot bind windows. Other foreign
    /// operations complete in error.
    #[error("a {0} queue pair has no such operation")]
    WrongOperation(QpType),
}

impl PostError {
    /// Returns the error of a full queue with this capacity.
    pub(crate) const fn full(capacity: u32) -> Self {
        if capacity == 0 { Self::QueueOfZero } else { Self::QueueFull }
    }
}
