use std::time::Duration;

use roce_transport::{
    addr::Qpn,
    cm::CmMad,
    psn::{Msn, Psn},
    wire::Headers,
};

use super::{connection::Connection, finding::Finding, network::Network, reason::Explanation};

/// An explained capture.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// RoCE and InfiniBand packets, in capture order.
    pub packets: Vec<ExplainedPacket>,
    /// Connections and datagram flows, ordered by first packet.
    pub connections: Vec<Connection>,
    /// Findings, ordered by packet.
    pub findings: Vec<Finding>,
    /// Number of other frames.
    pub other_frames: usize,
    /// IP fragments, which are skipped.
    pub fragments: usize,
    /// False if the file ends within a frame.
    pub complete: bool,
}

/// A packet of a capture.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainedPacket {
    /// Frame number from 1, as in Wireshark.
    pub frame: usize,
    /// Time since the Unix epoch, or the capture's own.
    pub at: Duration,
    /// Network headers.
    pub net: Network,
    /// Transport headers, if valid.
    pub headers: Option<Headers>,
    /// Payload bytes by the headers.
    pub payload: usize,
    /// CM message, if any.
    pub message: Option<Box<CmMad>>,
    /// Not fully captured; the ICRC is unchecked.
    pub truncated: bool,
    /// The ICRC is wrong.
    pub wrong_icrc: bool,
    /// Sender's queue pair, from roce's comment.
    pub sender_qp: Option<Qpn>,
    /// Index of the connection.
    pub connection: Option<usize>,
    /// Sent by the second end.
    pub from_second: bool,
    /// Reason for sending.
    pub why: Explanation,
    /// Requesters of both ends afterwards. `None`: no request yet, or unknown PSNs of a READ.
    pub requesters: [Option<Requester>; 2],
}

impl ExplainedPacket {
    /// True if marked in the network: ECN in RoCE, FECN in InfiniBand.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        match self.net {
            Network::Roce(net) => net.is_congested(),
            Network::InfiniBand { .. } => self.headers.is_some_and(|headers| headers.bth().fecn),
        }
    }
}

/// Progress of a requester, as far as captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// PSN after the furthest request.
    pub next_psn: Psn,
    /// Oldest unacknowledged PSN, in services with responses.
    pub oldest_unacked: Option<Psn>,
    /// Completed requests, by the last response.
    pub msn: Option<Msn>,
}
