//! Errors of transitions and of posting.

use thiserror::Error;

use super::{
    state::{QpType, State},
    update::Attribute,
};
use crate::addr::{Gid, Mtu};

/// Reason why a queue pair cannot be changed as asked. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
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
    /// An entry of the GID table that is shown, but for packets of RoCE v1, which have no UDP
    /// header.
    #[error("GID index {0} is an entry of RoCE v1, which is not sent here")]
    RoceV1(u16),
    /// More than the port carries.
    #[error("path MTU {} is more than the port's active MTU {}", asked.bytes(), port.bytes())]
    PathMtu {
        /// The path MTU asked for.
        asked: Mtu,
        /// The port's.
        port: Mtu,
    },
    /// A number too large.
    #[error("{attribute} must not be more than {limit}")]
    Range {
        /// The attribute.
        attribute: Attribute,
        /// Its greatest value.
        limit: u8,
    },
}

/// Reason why a completion counter cannot be attached to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum CountError {
    /// There is no such queue pair (`EINVAL`).
    #[error("no such queue pair")]
    UnknownQp,
    /// It may have been used already (`EINVAL`).
    #[error("completion counters are attached in RESET or INIT; the queue pair is in {0}")]
    State(State),
    /// None is named (`EINVAL`).
    #[error("a completion counter counts at least one operation")]
    NoOperation,
    /// Another counter counts one of the operations (`EBUSY`).
    #[error("another completion counter of the queue pair counts one of these operations")]
    Counted,
}

/// Reason why a request cannot be posted. Nothing has been posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
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
    /// The queue was made for no requests.
    #[error("the queue was made for 0 requests")]
    QueueOfZero,
    /// More elements than the queue was made for.
    #[error("more than {limit} scatter/gather elements")]
    TooManySges {
        /// Elements allowed.
        limit: u32,
    },
    /// More elements than the adapter takes for a READ.
    #[error("more than {limit} scatter/gather elements for a READ")]
    TooManyReadSges {
        /// Elements allowed.
        limit: u32,
    },
    /// The adapter has no atomics.
    #[error("the adapter has no atomic operations")]
    NoAtomics,
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
    /// A message without a destination to a datagram queue pair, one with a destination to another,
    /// or a window for a datagram queue pair. Other operations that the service does not have
    /// complete in error.
    #[error("a {0} queue pair has no such operation")]
    WrongOperation(QpType),
}

impl PostError {
    /// Error of a full queue that was made for so many requests.
    pub(crate) const fn full(capacity: u32) -> Self {
        if capacity == 0 { Self::QueueOfZero } else { Self::QueueFull }
    }
}
