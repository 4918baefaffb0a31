//! Completions in error.

use super::{Explain, Reason};
use crate::{
    wire::{NakCode, Syndrome},
    work::{Cause, WcError, WcStatus},
};

macro_rules! statuses {
    ($($status:ident $name:literal;)*) => {
        impl WcStatus {
            /// Every failure status.
            pub const ALL: &'static [Self] = &[$(Self::$status,)*];

            /// Returns the name in `enum ibv_wc_status`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$status => $name,)* }
            }
        }
    };
}

statuses! {
    LocLenErr "IBV_WC_LOC_LEN_ERR";
    LocQpOpErr "IBV_WC_LOC_QP_OP_ERR";
    LocProtErr "IBV_WC_LOC_PROT_ERR";
    WrFlushErr "IBV_WC_WR_FLUSH_ERR";
    MwBindErr "IBV_WC_MW_BIND_ERR";
    BadRespErr "IBV_WC_BAD_RESP_ERR";
    LocAccessErr "IBV_WC_LOC_ACCESS_ERR";
    RemInvReqErr "IBV_WC_REM_INV_REQ_ERR";
    RemAccessErr "IBV_WC_REM_ACCESS_ERR";
    RemOpErr "IBV_WC_REM_OP_ERR";
    RetryExcErr "IBV_WC_RETRY_EXC_ERR";
    RnrRetryExcErr "IBV_WC_RNR_RETRY_EXC_ERR";
}

// Meaning of a status, whatever its cause.
reasons! {
    WcStatus {
        Self::LocLenErr => "local_length"
            "the message is longer than the receive that was posted, or than the path MTU of a \
             datagram";
        Self::LocQpOpErr => "local_operation"
            "the queue pair cannot do this operation: its service, or max_rd_atomic 0";
        Self::LocProtErr => "local_protection"
            "lkey, address and length of the scatter/gather elements";
        Self::WrFlushErr => "flushed"
            "the request was not at fault: look for what moved the queue pair to ERR before; the \
             first completion that is not flushed has it";
        Self::MwBindErr => "window_bind"
            "bind_info of the memory window; or the rkey that was to be invalidated, which is of \
             a window of type 2 that this queue pair has bound";
        Self::BadRespErr => "bad_response"
            "the peer answers otherwise than it was asked: the same PSNs and path_mtu at both \
             ends?";
        Self::LocAccessErr => "local_access" "access of the region that the receive buffer lies in";
        Self::RemInvReqErr => "remote_invalid_request"
            "the peer knows the reason (IBV_EVENT_QP_REQ_ERR, or LOC_LEN_ERR of its receive): a \
             message longer than its receive buffer; an operation that its qp_access_flags do not \
             allow; more READs than its max_dest_rd_atomic; another path_mtu there than here";
        Self::RemAccessErr => "remote_access"
            "remote_addr, length and rkey against the peer's region; its access must have \
             IBV_ACCESS_REMOTE_WRITE, _READ or _ATOMIC, and so must its qp_access_flags; region \
             and queue pair of the peer are of one domain; it must still be registered";
        Self::RemOpErr => "remote_operation"
            "the peer could not carry it out: the region or the lkey of its own receive buffer, \
             or its completion queue";
        Self::RetryExcErr => "no_response"
            "dest_qp_num, ah_attr.grh.dgid and sgid_index at both ends; the peer's queue pair \
             must be in RTR before this one sends; UDP port 4791 through firewalls; timeout and \
             retry_cnt long enough for the network";
        Self::RnrRetryExcErr => "receiver_not_ready"
            "the peer has to post receives before a message comes, and enough of them; rnr_retry \
             7 waits for ever, and min_rnr_timer of the peer says how long each wait is";
    }
}

impl Explain for WcError {
    fn explain(&self) -> Reason {
        let Self { status, cause } = self;
        let general = status.explain();
        let advice = match cause {
            Cause::Flushed | Cause::NoResponse { .. } | Cause::Responder(_) => {
                return Reason { rule: alloc::format!("{cause}"), ..of_responder(general, *cause) };
            }
            Cause::Access(error) => return error.explain(),
            Cause::Bind(error) => return error.explain(),
            Cause::Refused(refusal) => return refusal.explain(),
            Cause::TooLong { .. } => {
                "a datagram is one packet: no more bytes than the port's active_mtu; a raw packet has \
                 14 bytes more than the interface's MTU at most, and receives are to have as many"
            }
            Cause::TooShort { .. } => {
                "a raw packet is a whole frame: MAC addresses and ethertype first, no checksum behind"
            }
            Cause::Injected => "ROCE_FAULT, `roce run --fault` and `roce fault` give such rules",
            Cause::NotAWord { .. } => "sg_list of an atomic is one element of 8 bytes",
            Cause::NoReadsAllowed => {
                "max_rd_atomic of ibv_modify_qp to RTS (initiator_depth of rdma_connect) must be 1 or \
                 more, and max_dest_rd_atomic at the peer as many"
            }
            Cause::ResponseMismatch => {
                "path_mtu must be the same at both ends, and rq_psn the peer's sq_psn"
            }
            Cause::NoRoute => "sgid_index of the address handle: `roce devinfo -v` lists the GIDs",
            Cause::ForeignAddressHandle => {
                "make address handle and queue pair from the same ibv_pd"
            }
            Cause::WrongOperation => {
                "IBV_QPT_UD has SEND, IBV_QPT_UC has SEND and WRITE; READ and atomics need IBV_QPT_RC"
            }
        };
        Reason::new(general.cause, cause, advice)
    }
}

/// Advice if the peer violates the protocol.
fn of_responder(general: Reason, cause: Cause) -> Reason {
    let Cause::Responder(syndrome) = cause else { return general };
    match syndrome {
        Syndrome::Ack { .. }
        | Syndrome::RnrNak { .. }
        | Syndrome::Nak(
            NakCode::PsnSequenceError
            | NakCode::InvalidRequest
            | NakCode::RemoteAccessError
            | NakCode::RemoteOperationalError,
        ) => general,
        Syndrome::Nak(NakCode::InvalidRdRequest) | Syndrome::Reserved(_) => Reason {
            advice:
                "the peer's adapter answers with a NAK that no reliable connection has: a capture \
                     (--pcap) shows it"
                    .into(),
            ..general
        },
    }
}
