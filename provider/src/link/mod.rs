//! Links: what carries datagrams between an adapter and the world.

mod capture;
mod capture_file;
mod fabric;
mod faulty;
mod null;
mod shm;
mod udp;

use std::{io, net::IpAddr, os::fd::BorrowedFd};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    cm::ServiceId,
    share::IdPartition,
    time::Instant,
};

pub use crate::{bind::BindError, fabric::Direction};
pub use capture::{Capture, Observed, Observer};
pub(crate) use capture_file::CaptureFile;
pub use fabric::{Fabric, FabricLink};
pub use faulty::FaultyLink;
pub(crate) use null::NullLink;
pub use roce_transport::wire::{Datagram, DatagramMeta};
pub use udp::{Locality, UdpLink};

/// Messages of a link that [`Link::receive`] hands over at a time, if there are so many.
pub const BATCH: usize = 16;

/// Carries batches of datagrams. The engine calls it under the adapter's lock, so it must not wait
/// for packets.
pub trait Link: Send {
    /// The addresses it sends from and receives on.
    fn addresses(&self) -> Vec<IpAddr>;

    /// How long the runs may be that it is given.
    fn limits(&self) -> TransmitLimits;

    /// Which UDP source port its packets have.
    fn source_port(&self) -> SourcePort;

    /// Sends every run, in order; a run's range is an index into `bytes`. Datagrams that cannot be
    /// sent are lost, as on a wire.
    ///
    /// # Errors
    /// The last thing that went wrong, with the rest sent all the same.
    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<()>;

    /// Hands over what has arrived, some at a time; returns how many messages there were, each a
    /// datagram or a run of them. Fewer than [`BATCH`]: there are no more for now.
    ///
    /// # Errors
    /// When the link cannot be read.
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize>;

    /// Receives what is sent to this multicast group from now on, its own datagrams included: of
    /// every datagram one copy, however many of its own addresses are on the network where the
    /// group is. To join again changes nothing.
    ///
    /// # Errors
    /// When the link has no multicast, no address of the group's family, or the system refuses.
    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        let _ = group;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Receives nothing more for this group.
    fn leave(&mut self, group: IpAddr) {
        let _ = group;
    }

    /// Descriptors that become readable when something has arrived. They stay the same but for the
    /// addresses that are added and removed.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Told before someone sleeps on the descriptors: until [`unpark`](Self::unpark) they become
    /// readable when something arrives, which they need not while nobody waits for it. Returns
    /// whether there is nothing to receive already. Sleepers are counted.
    fn park(&mut self) -> bool {
        true
    }

    /// One of those who slept is awake again.
    fn unpark(&mut self) {}

    /// Runs handed to other devices of this host without the network stack.
    fn shared_runs(&self) -> u64 {
        0
    }

    /// Datagrams handed on to other processes of this host that have the same address.
    fn forwarded(&self) -> u64 {
        0
    }

    /// Which part of an address's numbers the adapter on this link must keep to; `None`: it has
    /// them all.
    fn partition(&self) -> Option<IdPartition> {
        None
    }

    /// The adapter listens for a service at one of its addresses, so that requests for it are to
    /// come here.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process that has the same address does so already.
    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        let _ = (service, address);
        Ok(())
    }

    /// Whether another process that has the same address listens for a service.
    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        let _ = (service, address);
        false
    }

    /// It listens for it no more.
    fn release(&mut self, service: ServiceId, address: IpAddr) {
        let _ = (service, address);
    }

    /// Begins to use another address, of the interface with this index. Its descriptor is new among
    /// [`descriptors`](Self::descriptors).
    ///
    /// # Errors
    /// See [`BindError`]. A link whose addresses are fixed refuses all others.
    fn add_address(&mut self, address: IpAddr, interface: u32) -> Result<(), BindError> {
        let _ = interface;
        Err(BindError::NotLocal(address))
    }

    /// Stops using an address that the host does not have any more.
    fn remove_address(&mut self, address: IpAddr) {
        let _ = address;
    }

    /// When it wants [`receive`](Self::receive) to be called although no descriptor is readable.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}
