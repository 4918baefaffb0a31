use alloc::borrow::Cow;

use super::{Explain, Reason};
use crate::event::DropReason;

impl DropReason {
    /// True if the drop shows a program's mistake that nothing else reports.
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

    /// Unlike a loss or a closed connection, an obstacle blocks every response.
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
                "the peer's dest_qp_num must equal qp_num here, in the same byte order; responses \
                 to a destroyed queue pair also arrive late"
                    .into()
            }
            other => other.explain().advice,
        }
    }
}

const PEER_ADAPTER: &str = "the peer's adapter sent a packet that no program can cause: a capture \
                            (--pcap) shows it";
const LOSSES: &str = "the network drops or duplicates packets; the protocol recovers";
const OVER: &str = "the connection is closed at this end; the protocol notifies the peer";

impl Explain for DropReason {
    fn explain(&self) -> Reason {
        let advice = match self {
            Self::TooShort | Self::Padding | Self::UnknownOpcode | Self::TransportVersion => {
                "UDP port 4791 receives packets that are not RoCEv2"
            }
            Self::UnknownQp => {
                "the sender's dest_qp_num (remote_qpn of a datagram) must equal qp_num of a queue \
                 pair here, in the same byte order; the queue pair may be destroyed"
            }
            Self::WrongService => {
                "both ends need the same qp_type: IBV_QPT_RC, UC and UD do not interoperate"
            }
            Self::WrongRole => "IBV_QPT_XRC_SEND sends to IBV_QPT_XRC_RECV only",
            Self::QpState => {
                "the queue pair receives from RTR on: move it to RTR before the peer sends"
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
            Self::NotAttached => "call ibv_attach_mcast before datagrams for the group arrive",
            Self::PKey => {
                "both ends need a P_Key of one partition, at least one with full membership"
            }
            Self::QKey => {
                "the sender's wr.ud.remote_qkey must equal the receiver's qkey of ibv_modify_qp \
                 to INIT; rdma_cm uses RDMA_UDP_QKEY, 0x01234567"
            }
            Self::Icrc => "packets are damaged in transit, or their IP header is rewritten",
            Self::OutOfSequence
            | Self::ReplayMissing
            | Self::ResponderBusy
            | Self::StaleResponse
            | Self::ReadResponseGap
            | Self::RecoveryUnderWay
            | Self::MessageBroken => LOSSES,
            Self::ResponseOutsideWindow => {
                "the peer's rq_psn must equal sq_psn here: exchange PSNs before RTR"
            }
            Self::UnexpectedResponse
            | Self::PayloadInAcknowledge
            | Self::ReservedSyndrome
            | Self::NotAMad
            | Self::CmWrongPeer => PEER_ADAPTER,
            Self::RequestRefused => {
                "an unreliable service does not notify the sender: compare rkey, remote_addr and \
                 length with the region here, and check its access and qp_access_flags"
            }
            Self::NoReceiveRequest => {
                "a datagram or unreliable connection does not notify its sender: post enough \
                 receives before it sends"
            }
            Self::CmUnknownConnection | Self::CmWrongState => OVER,
            Self::CmBacklog => "accept or reject requests sooner, or raise backlog of rdma_listen",
            Self::TooLong => {
                "a datagram's receive buffer needs 40 bytes for the GRH plus the message, which \
                 is one packet; byte_len of a received datagram includes the 40 bytes"
            }
        };
        Reason::new(self.name(), self, advice)
    }
}
