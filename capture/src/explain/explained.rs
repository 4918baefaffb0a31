//! A capture with reasons for its packets.

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
    /// All RoCE and InfiniBand packets, in capture order.
    pub packets: Vec<ExplainedPacket>,
    /// Connections and datagram flows, ordered by first packet.
    pub connections: Vec<Connection>,
    /// Findings, ordered by the packets that show them.
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
    /// Transport headers; `None`: it does not parse.
    pub headers: Option<Headers>,
    /// Payload bytes by its headers.
    pub payload: usize,
    /// CM message, if any.
    pub message: Option<Box<CmMad>>,
    /// True if it was not fully captured; its ICRC is then unchecked.
    pub truncated: bool,
    /// True if its ICRC is wrong, unless all others on its way are, too.
    pub wrong_icrc: bool,
    /// Sender's queue pair, if a comment of roce's names it.
    pub sender_qp: Option<Qpn>,
    /// Index of its connection.
    pub connection: Option<usize>,
    /// True if sent by the connection's second end.
    pub from_second: bool,
    /// Reason for sending it.
    pub why: Explanation,
    /// Requesters of both ends after it. `None`: no request yet, or unknown PSNs of a READ.
    pub requesters: [Option<Requester>; 2],
}

impl ExplainedPacket {
    /// Returns true if marked in the network: ECN in RoCE, FECN in InfiniBand.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        match self.net {
            Network::Roce(net) => net.is_congested(),
            Network::InfiniBand { .. } => self.headers.is_some_and(|headers| headers.bth().fecn),
        }
    }
}

/// A requester's progress as far as the capture shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// PSN after the furthest request.
    pub next_psn: Psn,
    /// Oldest unacknowledged PSN. `None`: there is none, or the service has no responses.
    pub oldest_unacked: Option<Psn>,
    /// Completed requests, by the last response.
    pub msn: Option<Msn>,
}
