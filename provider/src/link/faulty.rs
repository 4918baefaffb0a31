//! A link that loses, doubles, delays and damages datagrams on purpose.

use std::{io, net::IpAddr, os::fd::BorrowedFd};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    time::Instant,
    wire::NetHeader,
};

use super::Link;

/// Puts faults between an adapter and its link, in both directions.
pub struct FaultyLink {
    inner: Box<dyn Link>,
}
