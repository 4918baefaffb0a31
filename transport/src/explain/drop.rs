//! Drop reasons.

use alloc::borrow::Cow;

use super::{Explain, Reason};
use crate::event::DropReason;

impl DropReason {
    /// Returns true if the drop shows a program's mistake that nothing else reports.
    #[must_use]
    pub const fn shows_a_mistake(self) -> bool {
        matches!(
            self,
            Self::UnknownQp
                | Self::WrongService
                | Self::WrongRole
                | Self::SourceAddress
                | Self::DestinationAddress
                | Self::RoceVersion
                | Self::PKey
                | Self::QKey
                | Self::RequestRefused
                | Self::NoReceiveRequest
                | Self::TooLong
        )
    }
}

impl DropReason {
    /// True if the reason blocks every response, unlike a loss or a closed connection.
    pub(super) fn is_obstacle(self) -> bool {
        let advice = self.explain().advice;
        advice != LOSSES && advice != OVER
    }

    pub(super) fn advice_for_responses(self) -> Cow<'static, str> {
        match self {
            Self::TooShort | Self::Padding | Self::UnknownOpcode | Self::TransportVersion => {
                PEER_ADAPTER.into()
            }
            Self::UnknownQp => {
                "dest_qp_num of the peer must be qp_num here, in the same byte order; \
                                answers to a queue pair that was destroyed come late"
                    .into()
            }
            other => other.explain().advice,
        }
    }
}

const PEER_ADAPTER: &str = "the peer's adapter has sent something that no program can make it send: a \
                            capture (--pcap) shows it";
const LOSSES: &str = "the network loses or repeats packets; the protocol recovers";
const OVER: &str = "the connection is over at this end; the peer hears of that by itself";

impl Explain for DropReason {
    fn explain(&self) -> Reason {
        let advice = match self {
            Self::TooShort | Self::Padding | Self::UnknownOpcode | Self::TransportVersion => {
                "something that is not RoCEv2 comes to UDP port 4791"
            }
            Self::UnknownQp => {
                "dest_qp_num (remote_qpn of a datagram) of the sender must be qp_num of a queue pair \
                 that exists here, in the same byte order; it may have been destroyed"
            }
            Self::WrongService => {
                "both ends need the same qp_type: IBV_QPT_RC, UC and UD do not speak with each other"
            }
            Self::WrongRole => "IBV_QPT_XRC_SEND sends to IBV_QPT_XRC_RECV, never the other way",
            Self::QpState => {
                "the queue pair hears from RTR on: move it there before the peer sends"
            }
            Self::SourceAddress => {
                "ah_attr.grh.dgid here must be the address that the peer sends from: its sgid_index"
            }
            Self::DestinationAddress => {
                "ah_attr.grh.sgid_index here must be the address that the peer sends to: its dgid"
            }
            Self::RoceVersion => {
                "ah_attr.grh.sgid_index of both ends must be GIDs of one type: ibv_query_gid_type"
            }
            Self::NotAttached => "ibv_attach_mcast comes before datagrams to the group",
            Self::PKey => {
                "both ends need a P_Key of one partition, and one of them full membership"
            }
            Self::QKey => {
                "wr.ud.remote_qkey of the sender must be the qkey that the receiver gave ibv_modify_qp \
                 to INIT; rdma_cm has RDMA_UDP_QKEY, 0x01234567"
            }
            Self::Icrc => "packets are damaged on their way, or their IP header was changed",
            Self::OutOfSequence
            | Self::ReplayMissing
            | Self::ResponderBusy
            | Self::StaleResponse
            | Self::ReadResponseGap
            | Self::RecoveryUnderWay
            | Self::MessageBroken => LOSSES,
            Self::ResponseOutsideWindow => {
                "rq_psn of the peer must be sq_psn here: exchange PSNs before RTR"
            }
            Self::UnexpectedResponse | Self::PayloadInAcknowledge | Self::ReservedSyndrome => {
                PEER_ADAPTER
            }
            Self::RequestRefused => {
                "the sender is never told in an unreliable service: rkey, remote_addr and length \
                 against the region here, its access, and qp_access_flags"
            }
            Self::NoReceiveRequest => {
                "the sender of a datagram, or over an unreliable connection, is never told: post \
                 receives before it sends, and enough of them"
            }
            Self::NotAMad => PEER_ADAPTER,
            Self::CmUnknownConnection | Self::CmWrongState => OVER,
            Self::CmWrongPeer => PEER_ADAPTER,
            Self::CmBacklog => {
                "backlog of rdma_listen: accept or reject requests sooner, or allow more"
            }
            Self::TooLong => {
                "a datagram's receive buffer needs 40 bytes for the GRH before the message, and the \
                 message is one packet"
            }
        };
        Reason::new(self.name(), self, advice)
    }
}
