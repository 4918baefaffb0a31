use core::fmt;

use super::{Explain, Reason};
use crate::cm::{ConnAttribute, ConnError, RejectReason, SidrRep};

reasons! {
    ConnError {
        Self::Unknown => EINVAL "connection_gone"
            "the peer rejected or closed it, or it was never made: wait for its events first";
        Self::State(_) => EINVAL "connection_state"
            "after rdma_connect, wait for ESTABLISHED; call rdma_accept once for each \
             CONNECT_REQUEST";
        Self::InUse => EADDRINUSE "service_in_use"
            "another id listens on this address and port; after a restart the port is free at once";
        Self::PrivateData(_) => EINVAL "private_data"
            "limit private_data_len to 56 bytes for rdma_connect, 196 for rdma_accept, 148 for \
             rdma_reject; less for datagrams";
        Self::TooMany(_) => ENOMEM "too_many_connections"
            "destroy ids of closed connections, or raise Limits";
        Self::OwnId => EINVAL "own_id" "the connection belongs to this device";
        Self::NoRoute => EHOSTUNREACH "no_route"
            "use IPv4 for both the id and the peer, or IPv6 for both";
        Self::Range(attribute) => EINVAL "attribute_range" range(*attribute);
    }
}

const fn range(attribute: ConnAttribute) -> &'static str {
    match attribute {
        ConnAttribute::ResponderResources => "ibv_query_device: max_qp_rd_atom",
        ConnAttribute::InitiatorDepth => "ibv_query_device: max_qp_init_rd_atom",
        ConnAttribute::RetryCount => "retry_count has three bits: 7 at most",
        ConnAttribute::RnrRetry => "rnr_retry_count has three bits: 7 means no limit",
        ConnAttribute::MinRnrTimer | ConnAttribute::AckTimeout => "a code of five bits: 31 at most",
    }
}

/// By the specification's table "REJ reason codes".
impl Explain for RejectReason {
    fn explain(&self) -> Reason {
        let (cause, advice) = match *self {
            Self::TIMEOUT => (
                "cm_timeout",
                "the peer received the request but did not complete the connection in time: it \
                 must call rdma_accept or rdma_reject soon after CONNECT_REQUEST",
            ),
            Self::INVALID_COMM_ID => (
                "cm_unknown_connection",
                "the peer does not know this connection: the peer closed it or restarted",
            ),
            Self::INVALID_SERVICE_ID => (
                "nobody_listens",
                "the peer's program must call rdma_listen first, on this port and port space; \
                 `roce devinfo --counters` lists the programs of the address",
            ),
            Self::INVALID_TRANSPORT => (
                "other_service",
                "both sides need the same port space and qp_type: RDMA_PS_TCP with IBV_QPT_RC, \
                 RDMA_PS_UDP with IBV_QPT_UD",
            ),
            Self::STALE_CONNECTION => (
                "stale_connection",
                "the peer still has a connection with the same queue pair number: it rejects once \
                 and drops the old one; connect again",
            ),
            Self::INVALID_GID => {
                ("peer_address", "the peer's device does not have the destination address")
            }
            Self::INVALID_MTU => ("path_mtu", "the peer's port carries a smaller path MTU"),
            Self::CONSUMER => (
                "rejected_by_program",
                "the peer's program called rdma_reject: private_data of the event may say why; \
                 private_data_len of a request is 56 whatever was sent",
            ),
            Self::VENDOR_OPTION => ("vendor_option", "the peer requests options of another vendor"),
            Self(1 | 3) => ("peer_resources", "the peer has no queue pair or no memory left"),
            Self(24 | 25) => {
                ("redirected", "the peer redirects to another port, which roce does not follow")
            }
            Self(27) => ("responder_resources", "initiator_depth is more than the peer allows"),
            Self(29) => ("rnr_retry", "the peer does not accept this rnr_retry_count"),
            Self(_) => {
                ("rejected", "the peer's adapter or kernel gives this reason; its log has more")
            }
        };
        Reason::new(cause, &format_args!("the peer rejects the connection: {self}"), advice)
    }
}

/// Status of a SIDR_REP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SidrStatus(pub u8);

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SidrRep::NO_SERVICE => "the peer has no such datagram service",
            SidrRep::REJECTED => "the peer refuses the datagram service",
            3 => "the peer has no queue pair for the datagram service",
            4 => "the peer redirects the datagram service, which roce does not follow",
            5 => "the peer does not know this version of service ID resolution",
            status => return write!(f, "the peer responds with status {status}"),
        })
    }
}

reasons! {
    SidrStatus {
        Self(SidrRep::NO_SERVICE) => "nobody_listens"
            "the peer's program must call rdma_listen on an id of RDMA_PS_UDP, on this port";
        Self(SidrRep::REJECTED) => "rejected_by_program"
            "the peer's program called rdma_reject: see private_data";
        Self(3) => "peer_resources" "the peer's program has made no queue pair for its id";
        Self(_) => "sidr_status"
            "the peer's adapter or kernel gives this status; its log has more";
    }
}
