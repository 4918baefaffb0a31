use super::{
    state::{QpType, State},
    update::Attribute,
};
use crate::{
    addr::{Gid, Mtu},
    named::errors,
};

errors! {
    /// Transition error; nothing changed.
    #[non_exhaustive]
    ModifyError {
        UnknownQp "no such queue pair";
        IllegalTransition { qp_type: QpType, from: State, to: State }
            "{qp_type} queue pairs cannot go from {from} to {to}";
        StillDraining "the send queue is still draining";
        WrongService(QpType)
            "the attributes are of another transition or type than this {0} queue pair's";
        CqOverrun "a completion queue of the queue pair has overflowed";
        PKeyIndex(u16) "P_Key index {0} does not exist or is unused";
        NotTaken { attribute: Attribute, qp_type: QpType, from: State, to: State }
            "{qp_type} queue pairs take no {attribute} from {from} to {to}";
        NotSupported(Attribute) "{0} is not supported: automatic path migration is missing";
        OtherState(State) "the queue pair is in {0}, not in the given cur_qp_state";
        MulticastPeer(Gid) "{0} is a multicast group; give the unicast GID of the peer";
        GidIndex(u16) "GID index {0} does not exist, or its address family is not the peer's";
        RoceV1(u16)
            "GID index {0} is a RoCE v1 entry, which this link cannot send; use a RoCE v2 entry";
        /// Path MTU above the port's.
        #[error("path MTU {} is more than the port's active MTU {}", asked.bytes(), port.bytes())]
        PathMtu { asked: Mtu, port: Mtu };
        Range { attribute: Attribute, limit: u8 } "{attribute} is too large; at most {limit}";
    }
}

errors! {
    /// Error of attaching a completion counter.
    #[non_exhaustive]
    CountError {
        UnknownQp "no such queue pair";
        State(State) "completion counters are attached in RESET or INIT; the queue pair is in {0}";
        NoOperation "a completion counter needs at least one operation";
        Counted "another completion counter of the queue pair counts one of these operations";
    }
}

errors! {
    /// Posting error; nothing was posted.
    #[non_exhaustive]
    PostError {
        UnknownQp "no such queue pair";
        State(State) "cannot post in state {0}";
        UnknownSrq "no such shared receive queue";
        SharedQueue "the queue pair has a shared receive queue; post to that";
        /// XRC initiators have no receive queue, XRC targets no queue.
        NoSuchQueue(QpType) "{0} queue pairs have no such queue";
        RemoteSrq "remote_srqn is for requests of an XRC initiator, which need it";
        QueueFull "the queue is full";
        QueueOfZero "the queue has 0 entries; create the queue pair with more";
        TooManySges { limit: u32 } "too many scatter/gather elements; at most {limit}";
        TooManyReadSges { limit: u32 }
            "too many scatter/gather elements; at most {limit} for a READ";
        NoAtomics "the adapter has no atomic operations";
        InlineTooLong { limit: u32 } "too many inline bytes; at most {limit}";
        InlineRead "a READ or an atomic operation cannot be inline";
        NoBytes "this operation takes no scatter/gather elements";
        TooLong "the message is longer than 2^30 bytes";
        /// UD messages need a destination, others none; UD has no windows.
        WrongOperation(QpType) "{0} queue pairs have no such operation";
    }
}

impl PostError {
    pub(crate) const fn full(capacity: u32) -> Self {
        if capacity == 0 { Self::QueueOfZero } else { Self::QueueFull }
    }
}
