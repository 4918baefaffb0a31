use super::{Explain, Reason};
use crate::{
    wire::{NakCode, Syndrome},
    work::{Cause, WcError, WcStatus},
};

// Meaning of a status, whatever its cause.
reasons! {
    WcStatus {
        Self::LocLenErr => "local_length"
            "the message is longer than the receive that was posted, or than the path MTU of a \
             datagram";
        Self::LocQpOpErr => "local_operation"
            "the queue pair cannot do this operation: its service, or max_rd_atomic 0";
        Self::LocProtErr => "local_protection"
            "check lkey, address and length of the scatter/gather elements";
        Self::WrFlushErr => "flushed"
            "the request is not the cause: the first completion that is not flushed shows why the \
             queue pair went to ERR";
        Self::MwBindErr => "window_bind"
            "check bind_info of the memory window, or the rkey to invalidate: it must be of a \
             type 2 window bound by this queue pair";
        Self::BadRespErr => "bad_response"
            "the peer's response does not match the request: check PSNs and path_mtu at both ends";
        Self::LocAccessErr => "local_access" "check access of the region that contains the \
                                              receive buffer";
        Self::RemInvReqErr => "remote_invalid_request"
            "the peer knows the reason (IBV_EVENT_QP_REQ_ERR, or LOC_LEN_ERR of its receive): a \
             message longer than its receive buffer; an operation that its qp_access_flags do not \
             allow; more READs than its max_dest_rd_atomic; another path_mtu there than here";
        Self::RemAccessErr => "remote_access"
            "compare remote_addr, length and rkey with the peer's region: it is registered, in \
             the domain of the peer's queue pair, and its access and qp_access_flags have \
             IBV_ACCESS_REMOTE_WRITE, _READ or _ATOMIC";
        Self::RemOpErr => "remote_operation"
            "the peer could not execute it: check the region and lkey of its receive buffer, and \
             its completion queue";
        Self::RetryExcErr => "no_response"
            "check dest_qp_num, ah_attr.grh.dgid and sgid_index at both ends; the peer's state (RTR \
             before this one sends); firewalls (UDP port 4791); timeout and retry_cnt";
        Self::RnrRetryExcErr => "receiver_not_ready"
            "the peer must post enough receives before messages arrive; rnr_retry 7 retries \
             without limit, and the peer's min_rnr_timer sets each wait";
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
                "a datagram is one packet of at most the port's active_mtu; a raw packet has at \
                 most the interface's MTU plus 14 bytes, and receives need as many"
            }
            Cause::TooShort { .. } => {
                "a raw packet is a whole frame: it starts with MAC addresses and ethertype and \
                 has no checksum"
            }
            Cause::Injected => "the rule comes from ROCE_FAULT, `roce run --fault` or `roce fault`",
            Cause::NotAWord { .. } => "set sg_list of an atomic to one element of 8 bytes",
            Cause::NoReadsAllowed => {
                "max_rd_atomic of ibv_modify_qp to RTS (initiator_depth of rdma_connect) must be \
                 at least 1, and the peer's max_dest_rd_atomic at least as many"
            }
            Cause::ResponseMismatch => {
                "path_mtu must be the same at both ends, and rq_psn the peer's sq_psn"
            }
            Cause::NoRoute => "sgid_index of the address handle: `roce devinfo -v` lists the GIDs",
            Cause::ForeignAddressHandle => {
                "make the address handle and the queue pair from one ibv_pd"
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
                "the peer's adapter sends a NAK that reliable connections do not have: a capture \
                 (--pcap) shows it"
                    .into(),
            ..general
        },
    }
}
