//! Completions.

use core::fmt;

use thiserror::Error;

use super::Refusal;
use crate::{
    ids::{Qpn, RKey},
    mem::{AccessError, WindowError},
    time::Instant,
    wire::{Immediate, Syndrome},
};

/// A work completion (`ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wc {
    /// The request's identifier.
    pub wr_id: u64,
    /// The queue pair it was posted to; for a receive from a shared queue, the one that received.
    pub qpn: Qpn,
    /// Time of its completion, by the adapter's clock (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub timestamp: Instant,
    /// Its result.
    pub result: Result<WcOk, WcError>,
}

impl Wc {
    /// A place for a completion to be polled into; it means nothing itself.
    pub const UNUSED: Self = Self {
        wr_id: 0,
        qpn: Qpn::new(0),
        timestamp: Instant::ZERO,
        result: Err(WcError::FLUSHED),
    };
}

/// Kind of a completed request (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// A SEND of ours.
    Send,
    /// An RDMA WRITE of ours.
    RdmaWrite,
    /// An RDMA READ of ours.
    RdmaRead,
    /// A compare and swap of ours.
    CompSwap,
    /// A fetch and add of ours.
    FetchAdd,
    /// A bind of a memory window of ours.
    BindMw,
    /// A local invalidation.
    LocalInv,
    /// A FLUSH of ours.
    Flush,
    /// An ATOMIC WRITE of ours.
    AtomicWrite,
    /// A receive request, by a SEND of the peer.
    Recv,
    /// A receive request, by an RDMA WRITE with immediate of the peer.
    RecvRdmaWithImm,
}

/// Contents of the 40 bytes in front of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrhArea {
    /// Its IPv4 header, in the last 20 bytes.
    Ipv4,
    /// Its IPv6 header.
    Ipv6,
    /// The global route header of RoCE v1.
    GlobalRoute,
}

/// A success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WcOk {
    /// The kind of request.
    pub opcode: WcOpcode,
    /// Bytes received or read, 8 for an atomic. On a datagram queue pair the 40 bytes of the GRH
    /// area count too. 0 for SEND and WRITE.
    pub byte_len: u32,
    /// Immediate data that came with the message.
    pub immediate: Option<Immediate>,
    /// The key of ours that the message has invalidated (`IBV_WC_WITH_INV`).
    pub invalidated: Option<RKey>,
    /// The sender's queue pair, for a datagram.
    pub src_qp: Option<Qpn>,
    /// Index of the P_Key that a datagram came with; 0 for everything else.
    pub pkey_index: u16,
    /// Contents of the 40-byte GRH area with which the receive buffer starts, if it does
    /// (`IBV_WC_GRH`).
    pub grh: Option<GrhArea>,
    /// The tag of the flow by which a raw packet came (`ibv_wc_read_flow_tag`); 0: it has none.
    pub flow_tag: u32,
}

impl WcOk {
    /// A success without further values.
    #[must_use]
    pub const fn new(opcode: WcOpcode, byte_len: u32) -> Self {
        Self {
            opcode,
            byte_len,
            immediate: None,
            invalidated: None,
            src_qp: None,
            pkey_index: 0,
            grh: None,
            flow_tag: 0,
        }
    }
}

/// A failure: the specification's status and, where known, what lies behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub struct WcError {
    /// The specification's status.
    pub status: WcStatus,
    /// Cause of the failure.
    pub cause: Cause,
}

impl WcError {
    pub(crate) const FLUSHED: Self = Self { status: WcStatus::WrFlushErr, cause: Cause::Flushed };
}

impl fmt::Display for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.cause)
    }
}

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal $name:literal;)*) => {
        /// Status of a request (`ibv_wc_status`); the numbers are those of the C API.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum WcStatus { $($(#[doc = $doc])* $variant = $code,)* }

        impl fmt::Display for WcStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name,)* })
            }
        }
    };
}

statuses! {
    /// The message does not fit the posted buffer, or is longer than the service allows.
    LocLenErr = 1 "local length error";
    /// Something inside the queue pair is inconsistent, or a local invalidation named a wrong key.
    LocQpOpErr = 2 "local QP operation error";
    /// A local scatter or gather element is not valid for this use.
    LocProtErr = 4 "local protection error";
    /// The queue pair went into the error state before this request was carried out.
    WrFlushErr = 5 "work request flushed";
    /// A memory window cannot be bound as asked.
    MwBindErr = 6 "memory window bind error";
    /// The responder answered with something that does not fit the request.
    BadRespErr = 7 "bad response";
    /// A receive buffer turned out not to allow the access of an incoming RDMA WRITE.
    LocAccessErr = 8 "local access error";
    /// The responder found the request invalid.
    RemInvReqErr = 9 "remote invalid request";
    /// The responder refused the access to its memory.
    RemAccessErr = 10 "remote access error";
    /// The responder could not carry the request out.
    RemOpErr = 11 "remote operation error";
    /// The responder did not answer, however often it was asked.
    RetryExcErr = 12 "transport retry counter exceeded";
    /// The responder was not ready, however often it was asked.
    RnrRetryExcErr = 13 "RNR retry counter exceeded";
}

/// Cause of a failed completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The queue pair was in the error state.
    Flushed,
    /// A local buffer.
    Access(AccessError),
    /// Answer of the responder, which knows the reason.
    Responder(Syndrome),
    /// No answer to this many tries.
    NoAnswer {
        /// Transmissions of the oldest packet.
        tries: u8,
    },
    /// A message longer than what it may be.
    TooLong {
        /// Its bytes.
        length: u32,
        /// The bytes allowed.
        limit: u32,
    },
    /// A frame shorter than its header.
    TooShort {
        /// Its bytes.
        length: u32,
        /// The fewest bytes.
        least: u32,
    },
    /// A memory window.
    Bind(WindowError),
    /// The list of an atomic is not of eight bytes.
    NotAWord {
        /// Its bytes.
        length: u32,
    },
    /// The queue pair was connected with `max_rd_atomic` 0, so it does no READs and no atomics.
    NoReadsAllowed,
    /// A READ response whose opcode or length does not fit the request.
    ResponseMismatch,
    /// Answer of our responder to the peer when this receive request was being filled.
    Refused(Refusal),
    /// The address handle names a GID index that does not exist, or one of another address family.
    NoRoute,
    /// The address handle belongs to another protection domain than the queue pair.
    ForeignAddressHandle,
    /// The operation does not exist in this service.
    WrongOperation,
    /// It was to fail on request.
    Injected,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flushed => f.write_str("the queue pair was in the error state"),
            Self::Access(error) => error.fmt(f),
            Self::Bind(error) => error.fmt(f),
            Self::Responder(syndrome) => write!(f, "the responder answered {syndrome}"),
            Self::NoAnswer { tries } => write!(f, "no answer after {tries} tries"),
            Self::TooLong { length, limit } => {
                write!(f, "{length} bytes where {limit} are allowed")
            }
            Self::TooShort { length, least } => {
                write!(f, "{length} bytes where a frame has {least} at least")
            }
            Self::NotAWord { length } => {
                write!(f, "the list of an atomic has {length} bytes instead of 8")
            }
            Self::NoReadsAllowed => f.write_str(
                "the queue pair was connected with max_rd_atomic 0: no READs and no atomics",
            ),
            Self::ResponseMismatch => f.write_str("a READ response does not fit its request"),
            Self::ForeignAddressHandle => f.write_str(
                "the address handle is of another protection domain than the queue pair",
            ),
            Self::WrongOperation => {
                f.write_str("the queue pair's transport service has no such operation")
            }
            Self::Injected => f.write_str("a rule has it fail"),
            Self::Refused(refusal) => write!(f, "the peer's request was refused: {refusal}"),
            Self::NoRoute => f.write_str(
                "the address handle's GID index does not exist or is of another address family",
            ),
        }
    }
}
