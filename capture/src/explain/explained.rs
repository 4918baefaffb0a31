//! A capture, explained: its packets with their reasons.

use std::time::Duration;

use roce_transport::{
    addr::Qpn,
    cm::CmMad,
    psn::{Msn, Psn},
    wire::Headers,
};

use super::{connection::Connection, finding::Finding, network::Network, reason::Explanation};

/// A capture, explained.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// Every packet of RoCE or InfiniBand, in the capture's order.
    pub packets: Vec<ExplainedPacket>,
    /// Every connection, and flows of datagrams, in the order of their first packets.
    pub connections: Vec<Connection>,
    /// Findings, in the order of the packets that show them.
    pub findings: Vec<Finding>,
    /// Frames that hold none.
    pub other_frames: usize,
    /// Fragments of IP packets, which are left out.
    pub fragments: usize,
    /// False if the file ends within a frame.
    pub complete: bool,
}

/// A packet of a capture.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainedPacket {
    /// Number of its frame, from 1, as Wireshark counts.
    pub frame: usize,
    /// Since the Unix epoch, or whatever the capture counts from.
    pub at: Duration,
    /// Its network headers.
    pub net: Network,
    /// Its headers; `None`: it is no packet that parses.
    pub headers: Option<Headers>,
    /// Bytes of its payload, as its headers have it.
    pub payload: usize,
    /// The message of connection management that it carries.
    pub message: Option<Box<CmMad>>,
    /// True if not all of it was captured; its ICRC was not checked then.
    pub truncated: bool,
    /// True if its ICRC is wrong. If those of all others on its way are, too, it counts as right.
    pub wrong_icrc: bool,
    /// The sender's queue pair, if a comment of roce's own names it.
    pub sender_qp: Option<Qpn>,
    /// Index of its connection.
    pub connection: Option<usize>,
    /// True if it is from the second of the connection's ends.
    pub from_second: bool,
    /// Reason for which it was sent.
    pub why: Explanation,
    /// The requesters of the connection's ends behind it. `None`: the capture has no request of it
    /// so far, or does not tell how many PSNs a READ has taken.
    pub requesters: [Option<Requester>; 2],
}

impl ExplainedPacket {
    /// True if a switch or a router has marked it: "congestion experienced" (ECN) in RoCE, FECN in
    /// InfiniBand.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        match self.net {
            Network::Roce(net) => net.is_congested(),
            Network::InfiniBand { .. } => self.headers.is_some_and(|headers| headers.bth().fecn),
        }
    }
}

/// How far a requester has come at a place of a capture, as far as the capture shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// PSN of its next request: the one behind the furthest.
    pub next_psn: Psn,
    /// The oldest PSN without an answer. `None`: everything is answered, or the service has no
    /// answers.
    pub oldest_unacked: Option<Psn>,
    /// Requests that the other end has completed, by its last answer.
    pub msn: Option<Msn>,
}
