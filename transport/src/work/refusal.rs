//! Reasons of a responder for refusing a request.

use core::fmt;

use crate::mem::AccessError;

/// Reason why a responder answered with a NAK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// An earlier packet is missing.
    MissingPacket,
    /// It would change memory that a READ before it has yet to send; it is asked for again behind
    /// that.
    UnansweredRead,
    /// No receive request is posted.
    NoReceiveRequest,
    /// The packet does not continue the message under way.
    OpcodeOrder,
    /// The payload's length is wrong for the packet's place, or does not add up to the announced
    /// length.
    Length,
    /// The message is longer than the posted buffer.
    BufferTooSmall,
    /// The queue pair does not allow this operation.
    NotEnabled,
    /// More READs than agreed on.
    TooManyReads,
    /// The R_Key or the access does not fit.
    Access(AccessError),
    /// The responder's own receive request is bad.
    LocalBuffer(AccessError),
    /// The address of an atomic is not a multiple of eight.
    Misaligned,
    /// The key that a SEND was to invalidate cannot be.
    Invalidate(AccessError),
    /// A FLUSH with reserved bits, or without a placement type.
    FlushKind,
    /// No XRC SRQ has the number that the request names.
    UnknownXrcSrq,
    /// The XRC SRQ that the request names is of another XRC domain than the target.
    ForeignXrcSrq,
    /// The completion queue of the XRC SRQ that the request names has overflowed.
    FailedXrcSrq,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingPacket => f.write_str("an earlier packet is missing"),
            Self::UnansweredRead => f.write_str("a READ of that memory is not answered yet"),
            Self::NoReceiveRequest => f.write_str("no receive request is posted"),
            Self::OpcodeOrder => f.write_str("the packet does not continue the message under way"),
            Self::Length => f.write_str("the payload's length is wrong for the packet"),
            Self::BufferTooSmall => f.write_str("the message is longer than the posted buffer"),
            Self::NotEnabled => f.write_str("the queue pair does not allow this operation"),
            Self::TooManyReads => f.write_str("more READs outstanding than agreed on"),
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
