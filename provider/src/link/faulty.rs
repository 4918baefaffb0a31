//! A link that loses, doubles, delays and damages datagrams on purpose.

use std::{io, net::IpAddr, os::fd::BorrowedFd};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    time::Instant,
    wire::NetHeader,
};

use super::{BindError, Link};
use crate::fabric::{FaultPlan, Network};

/// Puts faults between an adapter and its link, in both directions, each judged for itself.
pub struct FaultyLink {
    inner: Box<dyn Link>,
    outward: Network,
    inward: Network,
}

impl FaultyLink {
    /// The link `inner` with these faults; the same seed gives the same faults to the same datagrams.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, plan: FaultPlan, seed: u64) -> Self {
        Self { inner, outward: Network::with_plan(plan.clone(), seed), inward: Network::with_plan(plan, !seed) }
    }

    /// Sends what has been held back long enough.
    fn forward(&mut self, now: Instant) -> io::Result<()> {
        let mut result = Ok(());
        while let Some(datagram) = self.outward.poll_deliver(now) {
            let NetHeader { src, dst, src_port, traffic_class, hop_limit, .. } = datagram.net;
            let (segment, range) = (datagram.bytes.len(), 0..datagram.bytes.len());
            let run = Transmit { src, dst, src_port, traffic_class, hop_limit, segment, range };
            if let Err(error) = self.inner.send(now, &datagram.bytes, &[run]) {
                result = Err(error);
            }
        }
        result
    }
}

impl Link for FaultyLink {
    fn addresses(&self) -> Vec<IpAddr> {
        self.inner.addresses()
    }

    fn limits(&self) -> TransmitLimits {
        // a datagram missing from a run would change the identification of those behind it
        TransmitLimits::SINGLE
    }

    fn source_port(&self) -> SourcePort {
        self.inner.source_port()
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<()> {
        for run in runs {
            self.outward.send(now, &run.net_header(0), bytes.get(run.range.clone()).unwrap_or_default());
        }
        self.forward(now)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&NetHeader, &[u8])) -> io::Result<usize> {
        self.forward(now)?;
        let inward = &mut self.inward;
        let mut count = self.inner.receive(now, &mut |net, bytes| {
            inward.send(now, net, bytes);
        })?;
        while let Some(datagram) = self.inward.poll_deliver(now) {
            sink(&datagram.net, &datagram.bytes);
            count += 1;
        }
        Ok(count)
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.inner.leave(group);
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.descriptors()
    }

    fn add_address(&mut self, address: IpAddr, interface: u32) -> Result<(), BindError> {
        self.inner.add_address(address, interface)
    }

    fn remove_address(&mut self, address: IpAddr) {
        self.inner.remove_address(address);
    }

    fn deadline(&self) -> Option<Instant> {
        [self.inner.deadline(), self.outward.poll_timeout(), self.inward.poll_timeout()].into_iter().flatten().min()
    }
}
