//! Links carry datagrams between an adapter and the network.
//!
//! [`UdpLink`] uses sockets, [`Fabric`] a simulated network. A program may [bring its
//! own](crate::Device::with_link).

mod arrival;
mod capture;
mod capture_file;
mod conn_record;
mod credentials;
mod descriptors;
mod epoll;
mod fabric;
mod faulty;
mod kept;
mod message;
mod name;
mod null;
mod raw;
mod rings;
mod sealed;
mod share;
mod sharing;
mod socket_option;
mod stranger;
mod udp;

use std::{any::Any, io, net::IpAddr, os::fd::BorrowedFd, time::Duration};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    cm::{ConnId, ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};

pub use crate::{
    bind::{BindError, XdpRefusal},
    clock::now,
    fabric::Direction,
};
pub use capture::{Capture, Observed, Observer};
pub(crate) use capture_file::CaptureFile;
pub(crate) use credentials::check_trust;
pub use fabric::{Fabric, FabricLink};
pub(crate) use faulty::FaultyLink;
pub(crate) use null::NullLink;
pub(crate) use raw::{RawLink, XdpMode, XdpOptions};
pub use roce_ethernet::{FrameCounters, Lease, LeaseError, MacAddr, Membership};
pub use roce_transport::wire::{Datagram, DatagramMeta, DatagramRun};
#[doc(hidden)] // for the fuzz targets
pub use share::Service as ShareService;
pub use sharing::Locality;
pub(crate) use sharing::{Left, Members};
pub(crate) use stranger::StrangersHeld;
#[doc(hidden)] // for the fuzz targets
pub use udp::{Ancillary, read_ancillary};
pub use udp::{SocketOptions, UdpLink};

/// Minimum of messages per [`Link::receive`], if that many have arrived.
pub const BATCH: usize = 16;

/// Interval of checks that need no readable descriptor, while no thread sleeps on the link.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Greatest payload of a run, in bytes, that fits both IPv4 and IPv6.
const MAX_RUN: usize = 65_487;

type RunSink<'a> = dyn FnMut(&DatagramRun<'_>) + 'a;

/// Carrier of RoCEv2 datagrams: UDP payloads with IP and UDP header fields.
///
/// Methods run under the adapter's lock and must not block; blocking work is a [`Preparation`].
/// Payloads and ICRC-covered fields (addresses, source port, a known IPv4 identification) must not
/// change.
pub trait Link: Send {
    /// Local addresses: the first entries of the device's GID table.
    fn addresses(&self) -> Vec<IpAddr>;

    /// True once after [`receive`](Self::receive) changed the addresses. Interface addresses that
    /// come and go are in [`address_set`](Self::address_set).
    fn poll_addresses(&mut self) -> bool {
        false
    }

    /// DHCP lease of the address.
    fn lease(&self) -> Option<Lease> {
        None
    }

    /// Limits of the runs given to [`send`](Self::send).
    fn limits(&self) -> TransmitLimits;

    /// UDP source port of sent packets.
    fn source_port(&self) -> SourcePort;

    /// UDP source ports of data from `address`.
    /// [`udp_source_port`](roce_transport::addr::udp_source_port) picks a port per flow. Empty:
    /// [`source_port`](Self::source_port).
    fn flow_ports(&self, address: IpAddr) -> Vec<u16> {
        let _ = address;
        Vec::new()
    }

    /// UDP source port of packets from `address` outside [`flow_ports`](Self::flow_ports). `None`:
    /// [`source_port`](Self::source_port).
    fn control_port(&self, address: IpAddr) -> Option<u16> {
        let _ = address;
        None
    }

    /// Sends runs in order and returns the number sent. A run's range indexes `bytes`. 0: full
    /// until [`blocked`](Self::blocked) is writable.
    ///
    /// # Errors
    /// If the first run cannot be sent, and is lost. The next call starts with the run behind it.
    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize>;

    /// False if a run's ICRC may be zero. Only a link that itself delivers datagrams unchanged, as
    /// [verified](DatagramMeta::checksum_verified), may return false. Called right before the run
    /// is sent.
    fn needs_icrc(&self, bytes: &[u8], run: &Transmit) -> bool {
        let _ = (bytes, run);
        true
    }

    /// Descriptor that is writable when [`send`](Self::send) has room. Called after each 0. `None`:
    /// the engine retries after 1 ms.
    fn blocked(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True while datagrams of unknown destination wait. Closing a device waits briefly for them.
    fn has_waiting(&self) -> bool {
        false
    }

    /// Hands over arrived messages (datagrams or runs) and returns their number; see [`BATCH`].
    ///
    /// # Errors
    /// If the link cannot be read. After 64 errors in a row and at least 1 s, the link is lost.
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize>;

    /// Hands over runs whole, which costs less per datagram.
    fn receive_runs(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) -> io::Result<usize> {
        self.receive(now, &mut |datagram| sink(&(*datagram).into()))
    }

    /// System's receive buffer in bytes, headers and bookkeeping included: a bound of outstanding
    /// READ data. `None`: nothing is lost for want of room.
    fn receive_buffer(&self) -> Option<usize> {
        None
    }

    /// Datagrams dropped by full sockets.
    fn socket_drops(&self) -> u64 {
        0
    }

    /// Counters of a link that builds its own frames.
    fn frame_counters(&self) -> FrameCounters {
        FrameCounters::default()
    }

    /// Descriptors that become readable on arrival. They change only with the addresses.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Time at which [`receive`](Self::receive) is due without a readable descriptor.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Makes the descriptors readable on arrival, until [`unpark`](Self::unpark). Called before a
    /// thread sleeps. Calls are counted. True if nothing has arrived yet.
    fn park(&mut self) -> bool {
        true
    }

    /// Ends one [`park`](Self::park).
    fn unpark(&mut self) {
        self.look();
    }

    /// Makes the next receive check every descriptor.
    fn look(&mut self) {}

    /// Multicast groups.
    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        None
    }

    /// Raw packets.
    fn frames(&mut self) -> Option<&mut dyn FrameLink> {
        None
    }

    /// MAC address, with [raw packets](Self::frames).
    fn frame_address(&self) -> Option<MacAddr> {
        None
    }

    /// Addresses and memory shared with other processes.
    fn sharing(&mut self) -> Option<&mut dyn SharingLink> {
        None
    }

    /// Addresses that come and go.
    fn address_set(&mut self) -> Option<&mut dyn AddressSetLink> {
        None
    }
}

/// Resource, such as a socket, opened or closed without the engine's lock.
pub type Prepared = Box<dyn Any + Send>;

/// Blocking work, done without the engine's lock. The link takes the result under the lock.
pub type Preparation<E> = Box<dyn FnOnce() -> Result<Prepared, E> + Send>;

/// Multicast groups of a link.
pub trait MulticastLink {
    /// Prepares [`join`](Self::join).
    ///
    /// # Errors
    /// If the link has no address of the group's family, or the system refuses.
    fn prepare_join(&mut self, group: IpAddr) -> Preparation<io::Error>;

    /// Receives each datagram to the group once, the link's own included. Joining twice changes
    /// nothing.
    fn join(&mut self, group: IpAddr, prepared: Prepared) -> io::Result<()>;

    /// Leaves the group and returns a resource to close.
    fn leave(&mut self, group: IpAddr) -> Option<Prepared>;
}

/// Raw packets of a link: whole Ethernet frames without a frame check sequence. The device has
/// queue pairs of type `IBV_QPT_RAW_PACKET`. No method may block.
pub trait FrameLink {
    /// Most bytes behind a frame's Ethernet header and VLAN tag.
    fn mtu(&self) -> u32;

    /// Sends a frame unchanged. `false`: no room.
    ///
    /// # Errors
    /// If the frame cannot be sent. The frame is lost.
    fn send_frame(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool>;

    /// Descriptor that becomes writable when there is room. `None`: retry after 1 ms.
    fn frame_room(&self) -> Option<BorrowedFd<'_>>;

    /// Switches [`receive_frames`](Self::receive_frames) on or off.
    fn listen(&mut self, on: bool) -> io::Result<()>;

    /// Hands over arrived frames with VLAN tags, and whether each frame is also the device's
    /// datagram. Returns their number. Skips frames sent by the device.
    fn receive_frames(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&[u8], bool),
    ) -> io::Result<usize>;

    /// Makes the interface accept more frames while the result is kept.
    fn prepare_membership(&mut self, membership: Membership) -> Preparation<io::Error>;
}

/// Addresses that change while a link is open.
pub trait AddressSetLink {
    /// Prepares [`add_address`](Self::add_address) on the interface with this index.
    fn prepare_address(&mut self, address: IpAddr, interface: u32) -> Preparation<BindError>;

    /// Adds an address, with a new descriptor in [`Link::descriptors`].
    fn add_address(&mut self, address: IpAddr, prepared: Prepared) -> Result<(), BindError>;

    /// Stops using an address that the host has lost.
    fn remove_address(&mut self, address: IpAddr);
}

/// State left by ended processes of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "a state's comment describes its fields")]
pub enum Ended {
    /// A process at a shared address, with its connections. This process notifies the remaining
    /// peers. The partition is reserved until [settled](SharingLink::settle).
    Here { address: IpAddr, partition: IdPartition, records: Vec<ConnRecord> },
    /// Connections whose peers at other addresses ended.
    There(Vec<ConnId>),
}

/// Memory, perhaps addresses, shared with other processes of this host.
pub trait SharingLink {
    /// Partition of an address's numbers for the adapter; `None`: all numbers.
    fn partition(&self) -> Option<IdPartition>;

    /// Prepares [`claim`](Self::claim): asks another process for the service or, without `claim`,
    /// whether the service is taken. `None`: nothing to do.
    fn prepare_claim(
        &mut self,
        service: ServiceId,
        address: IpAddr,
        claim: bool,
    ) -> Option<Preparation<io::Error>> {
        let _ = (service, address, claim);
        None
    }

    /// Directs requests for a service at an address to this process.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process listens for the service there.
    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()>;

    /// True if another process listens for the service at this address.
    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool;

    /// Releases a service.
    fn release(&mut self, service: ServiceId, address: IpAddr);

    /// Stores a connection's record for other processes at the address, should this process end.
    fn keep_record(&mut self, now: Instant, conn: ConnId, record: &ConnRecord);

    /// Erases a connection's record. The peer's end is no longer reported.
    fn discard_record(&mut self, conn: ConnId);

    /// Next report of ended processes.
    fn poll_ended(&mut self) -> Option<Ended>;

    /// Releases an [ended](Ended::Here) process's partition, once its state is handled.
    fn settle(&mut self, address: IpAddr, partition: IdPartition);

    /// Traffic through shared memory.
    fn shared_runs(&self) -> SharedRuns;

    /// Datagrams forwarded to other processes at the same address.
    fn forwarded(&self) -> u64;
}

/// Totals of traffic through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharedRuns {
    /// Runs.
    pub runs: u64,
    /// Wakeups of sleeping receivers.
    pub wakeups: u64,
}

/// Fails unless the condition holds.
fn ensure(condition: bool, error: io::ErrorKind) -> io::Result<()> {
    if condition { Ok(()) } else { Err(error.into()) }
}

/// Error of joining a group without an address of its family.
fn no_address_of_family() -> io::Error {
    let message = "the device has no address of the group's family";
    io::Error::new(io::ErrorKind::AddrNotAvailable, message)
}

#[cfg(test)]
fn partition(number: u8) -> IdPartition {
    IdPartition::new(number).unwrap()
}
