use core::fmt;

use crate::mem::AccessError;

/// Reason for a responder's NAK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Missing earlier packet.
    MissingPacket,
    /// An unfinished READ uses the memory.
    PendingRead,
    /// No receive request.
    NoReceiveRequest,
    /// Opcode out of order.
    OpcodeOrder,
    /// The length does not fit.
    Length,
    /// The message exceeds the buffer.
    BufferTooSmall {
        /// Bytes of the message so far.
        received: u64,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// Operation not enabled.
    NotEnabled,
    /// Too many READs.
    TooManyReads,
    /// Invalid R_Key or access.
    Access(AccessError),
    /// Invalid receive request.
    LocalBuffer(AccessError),
    /// Atomic not 8-byte aligned.
    Misaligned,
    /// Failed invalidation.
    Invalidate(AccessError),
    /// Reserved or missing FLUSH type.
    FlushKind,
    /// Unknown XRC SRQ.
    UnknownXrcSrq,
    /// XRC SRQ of another domain.
    ForeignXrcSrq,
    /// The XRC SRQ's completion queue overflowed.
    FailedXrcSrq,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingPacket => f.write_str("an earlier packet is missing"),
            Self::PendingRead => f.write_str("a READ of that memory has no response yet"),
            Self::NoReceiveRequest => f.write_str("no receive request is posted"),
            Self::OpcodeOrder => f.write_str("the packet does not continue the message under way"),
            Self::Length => f.write_str("the payload's length is wrong for the packet"),
            Self::BufferTooSmall { received, buffer } => write!(
                f,
                "the message is longer than the posted buffer: at least {received} B for {buffer} B"
            ),
            Self::NotEnabled => f.write_str("the queue pair does not allow this operation"),
            Self::TooManyReads => f.write_str("more READs outstanding than negotiated"),
            Self::Access(error) => write!(f, "R_Key: {error}"),
            Self::LocalBuffer(error) => write!(f, "receive buffer: {error}"),
            Self::Invalidate(error) => write!(f, "invalidation: {error}"),
            Self::FlushKind => f.write_str("a FLUSH of a reserved kind"),
            Self::Misaligned => f.write_str("the address is not a multiple of eight"),
            Self::UnknownXrcSrq => f.write_str("no XRC SRQ has this number"),
            Self::ForeignXrcSrq => f.write_str("the XRC SRQ is of another XRC domain"),
            Self::FailedXrcSrq => f.write_str("the XRC SRQ's completion queue has overflowed"),
        }
    }
}
