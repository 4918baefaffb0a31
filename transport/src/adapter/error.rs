//! Errors of making and of destroying objects.

use core::fmt;

use thiserror::Error;

/// Reason why an object cannot be made or destroyed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// As many exist as may.
    #[error("no more than {limit} {what} can exist")]
    TooMany {
        /// The kind of object.
        what: ObjectKind,
        /// Number of objects that may exist.
        limit: usize,
    },
    /// A size beyond what the adapter grants, or zero where that makes no sense.
    #[error("{what} must be within {least}..={limit}")]
    Size {
        /// The size.
        what: ObjectSize,
        /// Its least value.
        least: usize,
        /// Its greatest value.
        limit: usize,
    },
    /// A completion queue holds more completions than would fit.
    #[error("it holds {0} completions, more than would fit")]
    Held(usize),
    /// The completion queue has overflowed and takes nothing more.
    #[error("the completion queue has overflowed; make a new one")]
    Overrun,
    /// No such entry of the GID table, or one of another address family than the destination's.
    #[error(
        "GID index {0} does not exist or is of another address family than the destination's GID"
    )]
    GidIndex(u16),
    /// An entry of the GID table that is shown, but for packets of RoCE v1, which have no UDP
    /// header.
    #[error("GID index {0} is an entry of RoCE v1, which is not sent here")]
    RoceV1(u16),
    /// The object does not exist (any more).
    #[error("no such object")]
    Unknown,
    /// The parts do not go together.
    #[error(transparent)]
    Mismatch(#[from] ObjectMismatch),
    /// The link carries no frames of programs.
    #[error("the device's link carries no raw packets: a raw device does")]
    NoFrames,
    /// Another object still uses it.
    #[error("still in use")]
    InUse,
}

/// Parts that do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ObjectMismatch {
    /// An XRC target with queues.
    #[error("an XRC target is made in an XRC domain, without queues")]
    TargetWithQueues,
    /// An XRC initiator with a shared receive queue.
    #[error("an XRC initiator receives nothing")]
    InitiatorWithSrq,
    /// A queue pair of raw packets with a shared receive queue.
    #[error("a queue pair of raw packets has a receive queue of its own")]
    RawWithSrq,
    /// An XRC SRQ for a queue pair that is no XRC target.
    #[error("an XRC SRQ serves XRC targets only")]
    XrcSrq,
    /// Completion queues, or a shared receive queue, that are used by queue pairs of different
    /// shards.
    #[error(
        "its completion queues and its shared receive queue are of different shards of the device"
    )]
    Shards,
    /// A memory window of type 1 on a device with several shards.
    #[error("a device with several shards has memory windows of type 2 only")]
    Type1Window,
}

macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident $name:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name,)* })
            }
        }
    };
}

named! {
    /// Kind of an object of which an adapter holds a limited number.
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
    /// Size that an adapter limits.
    ObjectSize {
        /// Completions that a completion queue holds.
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
