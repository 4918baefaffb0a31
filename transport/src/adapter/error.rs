use crate::named::{errors, named};

errors! {
    /// Creation or destruction error; nothing changed.
    #[non_exhaustive]
    ObjectError {
        TooMany { what: ObjectKind, limit: usize } "too many {what}; at most {limit}";
        Size { what: ObjectSize, least: usize, limit: usize }
            "{what} is out of range; expected {least} to {limit}";
        Held(usize)
            "the completion queue holds {0} completions, more than the new size; poll it first";
        Overrun "the completion queue has overflowed; make a new one";
        GidIndex(u16)
            "GID index {0} does not exist, or its address family is not the destination's";
        RoceV1(u16)
            "GID index {0} is a RoCE v1 entry, which this link cannot send; use a RoCE v2 entry";
        Unknown "no such object";
        /// Mismatched parts.
        #[error("{0}")]
        Mismatch(ObjectMismatch);
        NoFrames "the device's link carries no raw packets; open raw:INTERFACE or xdp:INTERFACE";
        InUse "still in use";
    }
}

errors! {
    /// Mismatched parts.
    #[non_exhaustive]
    ObjectMismatch {
        TargetWithQueues "an XRC target is made in an XRC domain, without queues";
        InitiatorWithSrq "an XRC initiator has no receive queue";
        RawWithSrq "a raw packet queue pair takes no shared receive queue";
        XrcSrq "an XRC SRQ serves XRC targets only";
        Shards
            "the completion queues and the shared receive queue are of different shards; create \
             them on one";
        Type1Window
            "a device with several shards has no memory windows of type 1; use type 2, or one \
             shard";
    }
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

impl From<ObjectMismatch> for ObjectError {
    fn from(mismatch: ObjectMismatch) -> Self {
        Self::Mismatch(mismatch)
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
