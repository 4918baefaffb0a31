use thiserror::Error;

use crate::{
    ids::{Qpn, RKey},
    mem::{AccessError, WindowError},
    named::errors,
    time::Instant,
    wire::{Immediate, Syndrome},
};

/// A work completion (`ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wc {
    /// Request identifier.
    pub wr_id: u64,
    /// Queue pair.
    pub qpn: Qpn,
    /// Adapter time (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub timestamp: Instant,
    /// Result.
    pub result: Result<WcOk, WcError>,
}

impl Wc {
    /// A placeholder for polling.
    pub const UNUSED: Self = Self {
        wr_id: 0,
        qpn: Qpn::new(0),
        timestamp: Instant::ZERO,
        result: Err(WcError::FLUSHED),
    };
}

/// Kind of completed request (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// SEND.
    Send,
    /// RDMA WRITE.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// Compare and swap.
    CompSwap,
    /// Fetch and add.
    FetchAdd,
    /// Window bind.
    BindMw,
    /// Local invalidation.
    LocalInv,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// Receive of a SEND.
    Recv,
    /// Receive of a WRITE with immediate.
    RecvRdmaWithImm,
}

/// Contents of the GRH area, 40 bytes before a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrhArea {
    /// IPv4 header, in the last 20 bytes.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// Global route header of RoCE v1.
    GlobalRoute,
}

/// A success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WcOk {
    /// Kind of request.
    pub opcode: WcOpcode,
    /// Bytes received or read, with UD's 40-byte GRH area; 8 for an atomic, 0 for SEND and WRITE.
    pub byte_len: u32,
    /// Immediate data.
    pub immediate: Option<Immediate>,
    /// Invalidated local key (`IBV_WC_WITH_INV`).
    pub invalidated: Option<RKey>,
    /// Sender's queue pair (UD).
    pub src_qp: Option<Qpn>,
    /// P_Key index (UD), else 0.
    pub pkey_index: u16,
    /// GRH area in the buffer (`IBV_WC_GRH`).
    pub grh: Option<GrhArea>,
    /// Flow tag of a raw packet (`ibv_wc_read_flow_tag`), or 0.
    pub flow_tag: u32,
}

impl WcOk {
    /// Returns a success.
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

/// A failure: status and known cause.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("{status}: {cause}")]
pub struct WcError {
    /// Status of the specification.
    pub status: WcStatus,
    /// Cause.
    pub cause: Cause,
}

impl WcError {
    pub(crate) const FLUSHED: Self = Self { status: WcStatus::WrFlushErr, cause: Cause::Flushed };

    pub(crate) const fn protection(error: AccessError) -> Self {
        Self { status: WcStatus::LocProtErr, cause: Cause::Access(error) }
    }
}

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal $name:literal $text:literal;)*) => {
        /// Status of a request (`ibv_wc_status`), numbered as in C.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, derive_more::Display)]
        #[repr(u8)]
        pub enum WcStatus { $($(#[doc = $doc])* #[display($text)] $variant = $code,)* }

        impl WcStatus {
            /// Every failure status.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name in `enum ibv_wc_status`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

statuses! {
    /// Message beyond buffer or service limit.
    LocLenErr = 1 "IBV_WC_LOC_LEN_ERR" "local length error";
    /// Inconsistent queue pair, or invalidation of a wrong key.
    LocQpOpErr = 2 "IBV_WC_LOC_QP_OP_ERR" "local QP operation error";
    /// Invalid local SGE.
    LocProtErr = 4 "IBV_WC_LOC_PROT_ERR" "local protection error";
    /// ERR before execution.
    WrFlushErr = 5 "IBV_WC_WR_FLUSH_ERR" "work request flushed";
    /// Window bind refused.
    MwBindErr = 6 "IBV_WC_MW_BIND_ERR" "memory window bind error";
    /// Unfitting response.
    BadRespErr = 7 "IBV_WC_BAD_RESP_ERR" "bad response";
    /// A receive buffer denied a WRITE.
    LocAccessErr = 8 "IBV_WC_LOC_ACCESS_ERR" "local access error";
    /// Invalid request, by the responder.
    RemInvReqErr = 9 "IBV_WC_REM_INV_REQ_ERR" "remote invalid request";
    /// Access denied by the responder.
    RemAccessErr = 10 "IBV_WC_REM_ACCESS_ERR" "remote access error";
    /// Execution failed at the responder.
    RemOpErr = 11 "IBV_WC_REM_OP_ERR" "remote operation error";
    /// No response despite retries.
    RetryExcErr = 12 "IBV_WC_RETRY_EXC_ERR" "transport retry counter exceeded";
    /// Not ready despite retries.
    RnrRetryExcErr = 13 "IBV_WC_RNR_RETRY_EXC_ERR" "RNR retry counter exceeded";
}

errors! {
    /// Cause of a failure.
    Cause {
        Flushed "the queue pair was in the error state";
        /// Local buffer access.
        #[error("{0}")]
        Access(AccessError);
        Responder(Syndrome) "the responder sent {0}";
        NoResponse { tries: u8 } "no response after {tries} tries";
        TooLong { length: u32, limit: u32 } "{length} bytes where {limit} are allowed";
        TooShort { length: u32, least: u32 } "{length} bytes where a frame has at least {least}";
        /// Window bind.
        #[error("{0}")]
        Bind(WindowError);
        NotAWord { length: u32 } "the list of an atomic has {length} bytes, expected 8";
        NoReadsAllowed "the queue pair was connected with max_rd_atomic 0: no READs and no atomics";
        ResponseMismatch "a READ response does not fit its request";
        Refused(Refusal) "the peer's request was refused: {0}";
        NoRoute
            "the address handle's GID index does not exist, or its address family is not the \
             peer's";
        ForeignAddressHandle
            "the address handle and the queue pair are of different protection domains";
        WrongOperation "the queue pair's transport service has no such operation";
        Injected "a rule fails it";
    }
}

errors! {
    /// Reason for a responder's NAK.
    Refusal {
        MissingPacket "an earlier packet is missing";
        PendingRead "a READ of that memory has no response yet";
        NoReceiveRequest "no receive request is posted";
        OpcodeOrder "the packet does not continue the message under way";
        Length "the payload's length is wrong for the packet";
        BufferTooSmall { received: u64, buffer: u64 }
            "the message is longer than the posted buffer: at least {received} B for {buffer} B";
        NotEnabled "the queue pair does not allow this operation";
        TooManyReads "more READs outstanding than negotiated";
        /// Invalid R_Key or access.
        Access(AccessError) "R_Key: {0}";
        /// Invalid receive request.
        LocalBuffer(AccessError) "receive buffer: {0}";
        Misaligned "the address is not a multiple of eight";
        Invalidate(AccessError) "invalidation: {0}";
        FlushKind "a FLUSH of a reserved kind";
        UnknownXrcSrq "no XRC SRQ has this number";
        ForeignXrcSrq "the XRC SRQ is of another XRC domain";
        FailedXrcSrq "the XRC SRQ's completion queue has overflowed";
    }
}
