use thiserror::Error;

use crate::mem::AccessError;

/// Reason for a responder's NAK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// Missing earlier packet.
    #[error("an earlier packet is missing")]
    MissingPacket,
    /// An unfinished READ uses the memory.
    #[error("a READ of that memory has no response yet")]
    PendingRead,
    /// No receive request.
    #[error("no receive request is posted")]
    NoReceiveRequest,
    /// Opcode out of order.
    #[error("the packet does not continue the message under way")]
    OpcodeOrder,
    /// The length does not fit.
    #[error("the payload's length is wrong for the packet")]
    Length,
    /// The message exceeds the buffer.
    #[error("the message is longer than the posted buffer: at least {received} B for {buffer} B")]
    BufferTooSmall {
        /// Bytes of the message so far.
        received: u64,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// Operation not enabled.
    #[error("the queue pair does not allow this operation")]
    NotEnabled,
    /// Too many READs.
    #[error("more READs outstanding than negotiated")]
    TooManyReads,
    /// Invalid R_Key or access.
    #[error("R_Key: {0}")]
    Access(AccessError),
    /// Invalid receive request.
    #[error("receive buffer: {0}")]
    LocalBuffer(AccessError),
    /// Atomic not 8-byte aligned.
    #[error("the address is not a multiple of eight")]
    Misaligned,
    /// Failed invalidation.
    #[error("invalidation: {0}")]
    Invalidate(AccessError),
    /// Reserved or missing FLUSH type.
    #[error("a FLUSH of a reserved kind")]
    FlushKind,
    /// Unknown XRC SRQ.
    #[error("no XRC SRQ has this number")]
    UnknownXrcSrq,
    /// XRC SRQ of another domain.
    #[error("the XRC SRQ is of another XRC domain")]
    ForeignXrcSrq,
    /// The XRC SRQ's completion queue overflowed.
    #[error("the XRC SRQ's completion queue has overflowed")]
    FailedXrcSrq,
}
