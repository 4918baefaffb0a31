//! Links: carriers of datagrams between an adapter and the network.
//!
//! [`Link`] is the interface between the two. [`UdpLink`] uses sockets, [`Fabric`] a simulated
//! network inside the process; a program can
//! [open a device on a link of its own](crate::Device::with_link).

mod arrival;
mod capture;
mod capture_file;
mod conn_record;
mod credentials;
mod descriptors;
mod fabric;
mod faulty;
mod kept;
mod name;
mod null;
mod raw;
mod rings;
mod sealed;
mod share;
mod sharing;
mod stranger;
mod udp;

use std::{any::Any, io, net::IpAddr, os::fd::BorrowedFd};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    cm::{ConnId, ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};

pub use crate::{
    bind::{BindError, XdpRefusal},
    clock::now,
    ethernet::{FrameCounters, Lease, LeaseTrouble, MacAddr, Membership},
    fabric::Direction,
};
pub use capture::{Capture, Observed, Observer};
pub(crate) use capture_file::CaptureFile;
pub(crate) use credentials::check_trust;
pub use fabric::{Fabric, FabricLink};
pub use faulty::FaultyLink;
pub(crate) use null::NullLink;
pub(crate) use raw::{RawLink, XdpMode, XdpOptions};
pub use roce_transport::wire::{Datagram, DatagramMeta, DatagramRun};
#[doc(hidden)] // for the fuzz targets
pub use share::Service as ShareService;
pub(crate) use sharing::{Left, Members};
pub(crate) use stranger::StrangersHeld;
#[doc(hidden)] // for the fuzz targets
pub use udp::{Ancillary, read_ancillary};
pub use udp::{Locality, SocketOptions, UdpLink};

/// Number of messages of a link that one call of [`Link::receive`] hands over at least, if there
/// are so many.
pub const BATCH: usize = 16;

/// A carrier of datagrams: UDP payloads of RoCEv2 packets, with the fields of their IP and UDP
/// headers.
///
/// The engine calls every method under the adapter's lock, so none may wait. Sockets do not block,
/// [`send`](Self::send) takes no more than there is room for, and [`receive`](Self::receive)
/// returns at once when there is nothing. Work that may wait is a [`Preparation`]. A link must not
/// change payloads, nor the fields that the ICRC covers: addresses, source port, and the IPv4
/// identification if it is known.
///
/// [`Device::with_link`](crate::Device::with_link) has an example.
pub trait Link: Send {
    /// Addresses that it sends from and receives on: the first entries of the device's GID table.
    fn addresses(&self) -> Vec<IpAddr>;

    /// True once after its addresses have changed by themselves, which happens in
    /// [`receive`](Self::receive): the device's GID table follows. Those that come and go with the
    /// interface are of [`address_set`](Self::address_set).
    fn poll_addresses(&mut self) -> bool {
        false
    }

    /// The lease of its address, if a server has leased it one.
    fn lease(&self) -> Option<Lease> {
        None
    }

    /// Limits of the runs that [`send`](Self::send) is given.
    fn limits(&self) -> TransmitLimits;

    /// UDP source port of the packets that it sends.
    fn source_port(&self) -> SourcePort;

    /// UDP source ports of data from one of its addresses; a flow has one of them, by
    /// [`udp_source_port`](roce_transport::addr::udp_source_port). None: data leaves from
    /// [`source_port`](Self::source_port), as everything else does.
    fn flow_ports(&self, address: IpAddr) -> Vec<u16> {
        let _ = address;
        Vec::new()
    }

    /// UDP source port of what leaves from one of its addresses and from none of the
    /// [flow ports](Self::flow_ports), where it is another than [`source_port`](Self::source_port).
    fn control_port(&self, address: IpAddr) -> Option<u16> {
        let _ = address;
        None
    }

    /// Sends runs, from the first on and in order, and returns the number of those that it took; a
    /// run's range is an index into `bytes`. It need not take all: it is called again with the
    /// rest. 0 says that it is full. The runs then wait, nothing is built behind them, and they are
    /// offered again when [`blocked`](Self::blocked) is writable.
    ///
    /// # Errors
    /// When the first run cannot be sent. It is lost, as on a wire, and the link is called again
    /// with those behind it.
    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize>;

    /// True if the datagrams of a run need their ICRC; otherwise it is zero when the run is
    /// [sent](Self::send). It may be omitted only for receivers that this link hands the datagrams
    /// to unchanged, marked as [verified](DatagramMeta::checksum_verified). The engine asks right
    /// before it sends the run, whose range is an index into `bytes`.
    fn needs_icrc(&self, bytes: &[u8], run: &Transmit) -> bool {
        let _ = (bytes, run);
        true
    }

    /// Descriptor that becomes writable when there is room for what [`send`](Self::send) did not
    /// take. Asked for after each call that returned 0. `None`: the engine tries again a
    /// millisecond later.
    fn blocked(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True if it keeps datagrams that it has taken, or that are for another process, and does not
    /// know yet where to send them. A device that is closed waits for that, but not long.
    fn has_waiting(&self) -> bool {
        false
    }

    /// Hands over arrived messages, some at a time, and returns their number. A message is a
    /// datagram or a run. The number is [`BATCH`] at least unless there are no more for now.
    ///
    /// # Errors
    /// When the link cannot be read. After 64 such calls in a row, and at least a second, the link
    /// counts as lost.
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize>;

    /// The same in runs, for links that have them so: several of a run are handled for less work.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn receive_runs(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) -> io::Result<usize> {
        self.receive(now, &mut |datagram| sink(&(*datagram).into()))
    }

    /// Bytes that the system keeps for this link before they are read, headers and its own
    /// bookkeeping included. READs ask for no more data at once than that holds. `None`: nothing is
    /// lost for want of room.
    fn receive_buffer(&self) -> Option<usize> {
        None
    }

    /// Number of datagrams that arrived at this link's own sockets and found no room there.
    fn socket_drops(&self) -> u64 {
        0
    }

    /// Counters of a link that builds its own frames.
    fn frame_counters(&self) -> FrameCounters {
        FrameCounters::default()
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
    fn unpark(&mut self) {
        self.look();
    }

    /// Called when the descriptors may be readable: the next receive looks at everything.
    fn look(&mut self) {}

    /// Multicast groups, if it has them.
    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        None
    }

    /// Raw packets, if it carries them.
    fn frames(&mut self) -> Option<&mut dyn FrameLink> {
        None
    }

    /// MAC address of a link that [carries](Self::frames) raw packets.
    fn frame_address(&self) -> Option<MacAddr> {
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

/// What a link has opened without the engine's lock, or gives away to be closed without it, such as
/// a socket.
pub type Prepared = Box<dyn Any + Send>;

/// Work of a link that may wait. It is done without the engine's lock, and what it returns is given
/// to the link under the lock.
pub type Preparation<E> = Box<dyn FnOnce() -> Result<Prepared, E> + Send>;

/// Capability of a link: multicast groups.
pub trait MulticastLink {
    /// What [`join`](Self::join) needs.
    ///
    /// # Errors
    /// Those of the work: when the link has no address of the group's family, or the system
    /// refuses.
    fn prepare_join(&mut self, group: IpAddr) -> Preparation<io::Error>;

    /// Receives the datagrams to this multicast group from now on, its own included. Each arrives
    /// once, however many of the link's addresses are on the group's network. Joining again changes
    /// nothing.
    ///
    /// # Errors
    /// When the link cannot use what was prepared.
    fn join(&mut self, group: IpAddr, prepared: Prepared) -> io::Result<()>;

    /// Receives nothing more for this group. Returns what is to be closed.
    fn leave(&mut self, group: IpAddr) -> Option<Prepared>;
}

/// Capability of a link: raw packets, whole Ethernet frames without a frame check sequence, beside
/// the datagrams. A device on such a link has queue pairs of type `IBV_QPT_RAW_PACKET`.
///
/// As for every [link](Link), none of these may wait.
pub trait FrameLink {
    /// Bytes behind the Ethernet header of a frame, and behind its VLAN tag, at most.
    fn mtu(&self) -> u32;

    /// Sends a frame as it is; `false`: there is no room.
    ///
    /// # Errors
    /// When it cannot be sent. It is lost, as on a wire.
    fn send_frame(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool>;

    /// Descriptor that becomes writable when there is room for frames. `None`: it is tried again a
    /// millisecond later.
    fn frame_room(&self) -> Option<BorrowedFd<'_>>;

    /// From now on [`receive_frames`](Self::receive_frames) hands over what arrives, or does not.
    ///
    /// # Errors
    /// When the system refuses.
    fn listen(&mut self, on: bool) -> io::Result<()>;

    /// Hands over frames that have arrived, some at a time, with their VLAN tags, and whether the
    /// device takes a frame as a datagram, too. Returns their number. Those that the device has
    /// sent itself are not among them.
    ///
    /// # Errors
    /// When the link cannot be read.
    fn receive_frames(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&[u8], bool),
    ) -> io::Result<usize>;

    /// Has the interface take frames that it would not, for as long as what this returns is kept.
    ///
    /// # Errors
    /// Those of the work: when the system refuses.
    fn prepare_membership(&mut self, membership: Membership) -> Preparation<io::Error>;
}

/// Capability of a link: addresses that change while it is open.
pub trait AddressSetLink {
    /// What [`add_address`](Self::add_address) needs for an address of the interface with this
    /// index.
    ///
    /// # Errors
    /// Those of the work: see [`BindError`].
    fn prepare_address(&mut self, address: IpAddr, interface: u32) -> Preparation<BindError>;

    /// Begins to use another address. Its descriptor is new among [`Link::descriptors`].
    ///
    /// # Errors
    /// See [`BindError`].
    fn add_address(&mut self, address: IpAddr, prepared: Prepared) -> Result<(), BindError>;

    /// Stops using an address that the host does not have any more.
    fn remove_address(&mut self, address: IpAddr);
}

/// What other processes of this host leave when they end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A process at an own address has: its peers are to be told by this one, as far as they are
    /// not told yet.
    Here {
        /// The address.
        address: IpAddr,
        /// The partition of the process, which nobody else gets until this is [settled].
        ///
        /// [settled]: SharingLink::settle
        partition: IdPartition,
        /// Its connections.
        records: Vec<ConnRecord>,
    },
    /// Processes at other addresses have: these own connections have no peer any more.
    There(Vec<ConnId>),
}

/// Capability of a link: memory, and perhaps addresses, shared with other processes of this host.
pub trait SharingLink {
    /// Partition of an address's numbers that the adapter on this link must keep to; `None`: it has
    /// them all.
    fn partition(&self) -> Option<IdPartition>;

    /// What [`claim`](Self::claim) needs that may wait: without the engine's lock, another process
    /// is asked for the service, or, without `claim`, asked whether it is another's. `None`:
    /// nothing.
    fn prepare_claim(
        &mut self,
        service: ServiceId,
        address: IpAddr,
        claim: bool,
    ) -> Option<Preparation<io::Error>> {
        let _ = (service, address, claim);
        None
    }

    /// Has requests for a service at one of the link's addresses come to this process.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process listens for the service at this address.
    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()>;

    /// True if another process listens for the service at this address.
    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool;

    /// Gives a service back.
    fn release(&mut self, service: ServiceId, address: IpAddr);

    /// Keeps the record of an own connection where others at its address find it when this process
    /// has ended, however that ends.
    fn keep_record(&mut self, now: Instant, conn: ConnId, record: &ConnRecord);

    /// Erases such a record, and has nothing more to tell of the connection.
    fn discard_record(&mut self, conn: ConnId);

    /// The next news of processes that have ended.
    fn poll_ended(&mut self) -> Option<Ended>;

    /// What a process has [left](Ended::Here) has been seen to. Another may have its partition.
    fn settle(&mut self, address: IpAddr, partition: IdPartition);

    /// What went to other processes through shared memory, not through the network stack.
    fn shared_runs(&self) -> SharedRuns;

    /// Number of datagrams forwarded to other processes of this host that have the same address.
    fn forwarded(&self) -> u64;
}

/// Totals of what went to other processes through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharedRuns {
    /// Number of runs.
    pub runs: u64,
    /// Number of times that the other process slept, and was woken.
    pub wakeups: u64,
}

/// Capabilities for their users, with what holds for a link that lacks one.
impl dyn Link + '_ {
    /// See [`MulticastLink::prepare_join`].
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a link without multicast.
    pub(crate) fn prepare_join(&mut self, group: IpAddr) -> io::Result<Preparation<io::Error>> {
        Ok(self.multicast().ok_or(io::ErrorKind::Unsupported)?.prepare_join(group))
    }

    /// See [`MulticastLink::join`].
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a link without multicast.
    pub(crate) fn join(&mut self, group: IpAddr, prepared: Prepared) -> io::Result<()> {
        self.multicast().ok_or(io::ErrorKind::Unsupported)?.join(group, prepared)
    }

    /// See [`MulticastLink::leave`].
    pub(crate) fn leave(&mut self, group: IpAddr) -> Option<Prepared> {
        self.multicast()?.leave(group)
    }

    /// See [`AddressSetLink::prepare_address`]. A link whose addresses are fixed has no other.
    pub(crate) fn prepare_address(
        &mut self,
        address: IpAddr,
        interface: u32,
    ) -> Preparation<BindError> {
        match self.address_set() {
            Some(addresses) => addresses.prepare_address(address, interface),
            None => Box::new(move || Err(BindError::NotLocal(address))),
        }
    }

    /// See [`AddressSetLink::add_address`].
    pub(crate) fn add_address(
        &mut self,
        address: IpAddr,
        prepared: Prepared,
    ) -> Result<(), BindError> {
        let addresses = self.address_set().ok_or(BindError::NotLocal(address))?;
        addresses.add_address(address, prepared)
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

    /// See [`SharingLink::prepare_claim`].
    pub(crate) fn prepare_claim(
        &mut self,
        service: ServiceId,
        address: IpAddr,
        claim: bool,
    ) -> Option<Preparation<io::Error>> {
        self.sharing()?.prepare_claim(service, address, claim)
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
