//! No network.

use std::{io, net::IpAddr, os::fd::BorrowedFd};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    time::Instant,
};

use super::{Datagram, Link};

/// A link without addresses and traffic.
pub(crate) struct NullLink;

impl Link for NullLink {
    fn addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    fn limits(&self) -> TransmitLimits {
        TransmitLimits::SINGLE
    }

    fn source_port(&self) -> SourcePort {
        SourcePort::PerFlow
    }

    fn send(&mut self, _now: Instant, _bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        Ok(runs.len())
    }

    fn receive(
        &mut self,
        _now: Instant,
        _sink: &mut dyn FnMut(&Datagram<'_>),
    ) -> io::Result<usize> {
        Ok(0)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}
