//! What the packets of a capture say: connections, a reason for each packet, faults, figures.
//!
//! An adapter [records](roce_transport::trace) what it does. Of a capture nothing is left but
//! packets; so both ends' state is followed over them, and a reason is given only where the packets
//! prove it. Where they allow several, all of those are named.
//!
//! The capture may be from any point between the two ends, but reasons are best where packets are
//! repeated: a NAK that a capture has seen may have been lost behind it.

mod analysis;
mod connection;
mod end;
mod file;
mod finding;
mod frame;
mod pairing;
mod reason;

use std::{net::IpAddr, time::Duration};

use roce_transport::{
    addr::Qpn,
    cm::CmMad,
    wire::{Headers, NetHeader},
};

pub use connection::{Connection, EndSummary, RoundTrips};
pub use file::CaptureError;
pub use finding::{Finding, FindingKind};
pub use reason::{Cause, Causes, Explanation};

/// A capture, explained.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// Every RoCE packet, in the capture's order.
    pub packets: Vec<ExplainedPacket>,
    /// Every connection, and flows of datagrams, in the order of their first packets.
    pub connections: Vec<Connection>,
    /// What is wrong, in the order of the packets that show it.
    pub findings: Vec<Finding>,
    /// Frames that hold no RoCE packet.
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
    /// Its network header.
    pub net: NetHeader,
    /// Its headers; `None`: it is no packet that parses.
    pub headers: Option<Headers>,
    /// Bytes of its payload, as its headers have it.
    pub payload: usize,
    /// The message of connection management that it carries.
    pub message: Option<Box<CmMad>>,
    /// True if not all of it was captured; its ICRC was not checked then.
    pub truncated: bool,
    /// True for RoCE version 1, without IP and UDP.
    pub v1: bool,
    /// Index of its connection.
    pub connection: Option<usize>,
    /// True if it is from the second of the connection's ends.
    pub from_second: bool,
    /// Reason for which it was sent.
    pub why: Explanation,
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndPoint {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair, if the capture tells.
    pub qpn: Option<Qpn>,
}

impl Explained {
    /// Explains the content of a pcap or pcapng file.
    ///
    /// # Errors
    /// [`CaptureError`], when it is none of these.
    pub fn of_file(file: &[u8]) -> Result<Self, CaptureError> {
        let mut analysis = analysis::Analysis::default();
        let complete = file::frames(file, &mut |frame| analysis.take(&frame))?;
        Ok(analysis.finish(complete))
    }
}
