use thiserror::Error;

use crate::named::named;

/// Creation or destruction error; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Limit reached.
    #[error("too many {what}; at most {limit}")]
    TooMany {
        /// Kind.
        what: ObjectKind,
        /// Limit.
        limit: usize,
    },
    /// Out of range.
    #[error("{what} is out of range; expected {least} to {limit}")]
    Size {
        /// Size.
        what: ObjectSize,
        /// Least value.
        least: usize,
        /// Greatest value.
        limit: usize,
    },
    /// Too many completions held.
    #[error("the completion queue holds {0} completions, more than the new size; poll it first")]
    Held(usize),
    /// The completion queue overflowed.
    #[error("the completion queue has overflowed; make a new one")]
    Overrun,
    /// Missing GID index, or another address family.
    #[error("GID index {0} does not exist, or its address family is not the destination's")]
    GidIndex(u16),
    /// RoCE v1 entry, unable to send.
    #[error("GID index {0} is a RoCE v1 entry, which this link cannot send; use a RoCE v2 entry")]
    RoceV1(u16),
    /// No such object.
    #[error("no such object")]
    Unknown,
    /// Mismatched parts.
    #[error(transparent)]
    Mismatch(#[from] ObjectMismatch),
    /// No raw frames on this link.
    #[error("the device's link carries no raw packets; open raw:INTERFACE or xdp:INTERFACE")]
    NoFrames,
    /// Used by another object.
    #[error("still in use")]
    InUse,
}

/// Mismatched parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ObjectMismatch {
    /// XRC target with queues.
    #[error("an XRC target is made in an XRC domain, without queues")]
    TargetWithQueues,
    /// XRC initiator with an SRQ.
    #[error("an XRC initiator has no receive queue")]
    InitiatorWithSrq,
    /// Raw packet queue pair with an SRQ.
    #[error("a raw packet queue pair takes no shared receive queue")]
    RawWithSrq,
    /// XRC SRQ, which serves XRC targets only.
    #[error("an XRC SRQ serves XRC targets only")]
    XrcSrq,
    /// Queues of different shards.
    #[error(
        "the completion queues and the shared receive queue are of different shards; create them \
         on one"
    )]
    Shards,
    /// Type 1 window with several shards.
    #[error(
        "a device with several shards has no memory windows of type 1; use type 2, or one shard"
    )]
    Type1Window,
}

named! {
    /// Kind of a limited object.
    #[non_exhaustive]
    ObjectKind {
        /// `ibv_pd`.
        ProtectionDomain "protection domains";
        /// `ibv_cq`.
        CompletionQueue "completion queues";
        /// `ibv_qp`.
        QueuePair "queue pairs";
        /// `ibv_srq`.
        SharedReceiveQueue "shared receive queues";
        /// `ibv_xrcd`.
        XrcDomain "XRC domains";
        /// `ibv_ah`.
        AddressHandle "address handles";
        /// `ibv_mw`.
        MemoryWindow "memory windows";
    }
}

named! {
    /// Limited size.
    #[non_exhaustive]
    ObjectSize {
        /// Completions in a queue.
        Completions "completions";
        /// `QpCaps::max_send_wr`.
        MaxSendWr "max_send_wr";
        /// `QpCaps::max_recv_wr`.
        MaxRecvWr "max_recv_wr";
        /// `QpCaps::max_send_sge`.
        MaxSendSge "max_send_sge";
        /// `QpCaps::max_recv_sge`.
        MaxRecvSge "max_recv_sge";
        /// `QpCaps::max_inline_data`.
        MaxInlineData "max_inline_data";
        /// `SrqAttr::max_wr`.
        MaxWr "max_wr";
        /// `SrqAttr::max_sge`.
        MaxSge "max_sge";
        /// `CqModeration::period`, in microseconds.
        CqPeriod "cq_period in µs";
    }
}

pub(super) const fn known(exists: bool) -> Result<(), ObjectError> {
    if exists { Ok(()) } else { Err(ObjectError::Unknown) }
}

pub(super) fn limit(what: ObjectKind, exist: usize, limit: usize) -> Result<(), ObjectError> {
    if exist < limit { Ok(()) } else { Err(ObjectError::TooMany { what, limit }) }
}

pub(super) fn size(
    what: ObjectSize,
    value: usize,
    least: usize,
    limit: usize,
) -> Result<(), ObjectError> {
    if (least..=limit).contains(&value) {
        Ok(())
    } else {
        Err(ObjectError::Size { what, least, limit })
    }
}
