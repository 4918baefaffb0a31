//! Links: carriers of datagrams between an adapter and the network.
//!
//! [`Link`] is the interface between the two. [`UdpLink`] uses sockets, [`Fabric`] a simulated
//! network inside the process; a program can
//! [open a device on a link of its own](crate::Device::with_link).

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

/// Number of messages of a link that one call of [`Link::receive`] hands over, if there are so
/// many.
pub const BATCH: usize = 16;

/// A carrier of datagrams: UDP payloads of RoCEv2 packets, with the fields of their IP and UDP
/// headers.
///
/// The engine calls every method under the adapter's lock, so none may wait: sockets do not block,
/// and [`receive`](Self::receive) returns at once when there is nothing. A link must hand over
/// payloads unchanged, and the fields that the ICRC covers as they were sent: addresses, source
/// port, and the identification of IPv4 if it is known.
///
/// [`Device::with_link`](crate::Device::with_link) has an example.
pub trait Link: Send {
    /// Addresses that it sends from and receives on: the first entries of the device's GID table.
    fn addresses(&self) -> Vec<IpAddr>;

    /// Limits of the runs that [`send`](Self::send) is given.
    fn limits(&self) -> TransmitLimits;

    /// UDP source port of the packets that it sends.
    fn source_port(&self) -> SourcePort;

    /// Sends every run, in order; a run's range is an index into `bytes`. Datagrams that cannot be
    /// sent are lost, as on a wire.
    ///
    /// # Errors
    /// The last error, with the rest sent all the same.
    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<()>;

    /// Hands over what has arrived, some at a time; returns the number of messages, each a datagram
    /// or a run of them. Fewer than [`BATCH`]: there are no more for now.
    ///
    /// # Errors
    /// When the link cannot be read. After 64 such calls in a row, and at least a second, the link
    /// counts as lost.
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize>;

    /// Bytes that the system keeps for this link before they are read, headers and its own
    /// bookkeeping included. READs ask for no more data at once than that holds. `None`: nothing is
    /// lost for want of room.
    fn receive_buffer(&self) -> Option<usize> {
        None
    }

    /// Descriptors that become readable when something has arrived. They stay the same but for the
    /// addresses that are added and removed.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Time at which [`receive`](Self::receive) is to be called although no descriptor is readable.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Called before a thread sleeps on the descriptors: from now on, until
    /// [`unpark`](Self::unpark), they must become readable when something arrives. Calls are
    /// counted. Returns true if there is nothing to receive already.
    fn park(&mut self) -> bool {
        true
    }

    /// Called when a thread that slept is awake again.
    fn unpark(&mut self) {}

    /// Multicast groups, if it has them.
    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        None
    }

    /// Addresses and memory shared with other processes, if it shares any.
    fn sharing(&mut self) -> Option<&mut dyn SharingLink> {
        None
    }

    /// Addresses that come and go, if they do.
    fn address_set(&mut self) -> Option<&mut dyn AddressSetLink> {
        None
    }
}

/// Capability of a link: multicast groups.
pub trait MulticastLink {
    /// Receives what is sent to this multicast group from now on, its own datagrams included: of
    /// every datagram one copy, however many of its own addresses are on the network where the
    /// group is. Joining again changes nothing.
    ///
    /// # Errors
    /// When the link has no address of the group's family, or the system refuses.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Receives nothing more for this group.
    fn leave(&mut self, group: IpAddr);
}

/// Capability of a link: addresses that change while it is open.
pub trait AddressSetLink {
    /// Begins to use another address, of the interface with this index. Its descriptor is new among
    /// [`Link::descriptors`].
    ///
    /// # Errors
    /// See [`BindError`].
    fn add_address(&mut self, address: IpAddr, interface: u32) -> Result<(), BindError>;

    /// Stops using an address that the host does not have any more.
    fn remove_address(&mut self, address: IpAddr);
}

/// Capability of a link: memory, and perhaps addresses, shared with other processes of this host.
pub trait SharingLink {
    /// Partition of an address's numbers that the adapter on this link must keep to; `None`: it has
    /// them all.
    fn partition(&self) -> Option<IdPartition>;

    /// Has requests for a service at one of the own addresses come to this process.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process listens for the service at this address.
    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()>;

    /// True if another process listens for the service at this address.
    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool;

    /// Gives a service back.
    fn release(&mut self, service: ServiceId, address: IpAddr);

    /// Number of runs that went to other processes through shared memory, not through the network
    /// stack.
    fn shared_runs(&self) -> u64;

    /// Number of datagrams forwarded to other processes of this host that have the same address.
    fn forwarded(&self) -> u64;
}

/// Capabilities for their users, with what holds for a link that lacks one.
impl dyn Link + '_ {
    /// See [`MulticastLink::join`].
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a link without multicast.
    pub(crate) fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.multicast().ok_or(io::ErrorKind::Unsupported)?.join(group)
    }

    /// See [`MulticastLink::leave`].
    pub(crate) fn leave(&mut self, group: IpAddr) {
        if let Some(multicast) = self.multicast() {
            multicast.leave(group);
        }
    }

    /// See [`AddressSetLink::add_address`]. A link whose addresses are fixed has no other.
    pub(crate) fn add_address(&mut self, address: IpAddr, interface: u32) -> Result<(), BindError> {
        let addresses = self.address_set().ok_or(BindError::NotLocal(address))?;
        addresses.add_address(address, interface)
    }

    /// See [`AddressSetLink::remove_address`].
    pub(crate) fn remove_address(&mut self, address: IpAddr) {
        if let Some(addresses) = self.address_set() {
            addresses.remove_address(address);
        }
    }

    /// See [`SharingLink::claim`]. An address that is not shared is this process's.
    pub(crate) fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        self.sharing().map_or(Ok(()), |sharing| sharing.claim(service, address))
    }

    /// See [`SharingLink::is_claimed`].
    pub(crate) fn is_claimed(&mut self, service: ServiceId, address: IpAddr) -> bool {
        self.sharing().is_some_and(|sharing| sharing.is_claimed(service, address))
    }

    /// See [`SharingLink::release`].
    pub(crate) fn release(&mut self, service: ServiceId, address: IpAddr) {
        if let Some(sharing) = self.sharing() {
            sharing.release(service, address);
        }
    }
}
