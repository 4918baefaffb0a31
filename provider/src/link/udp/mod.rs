//! The `udp` link.

mod bound_address;
mod flows;
mod groups;
mod message;
mod options;
mod receive;
mod sharing;

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::Once,
    time::Duration,
};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    addr::ROCE_UDP_PORT,
    share::IdPartition,
    time::Instant,
    wire::{FrameFields, Ident, NetHeader},
};
use socket2::Socket;
use tracing::warn;

use super::{
    AddressSetLink, CHECK_INTERVAL, Datagram, DatagramMeta, DatagramRun, Link, MAX_RUN,
    MulticastLink, Preparation, Prepared, RunSink, SharingLink,
    kept::{self, Kept},
    sealed,
    share::{Clients, DIRECTORY, OWN, Service},
    sharing::{Locality, Sharing},
};
use crate::{bind::BindError, notice};
use bound_address::{BoundAddress, Opened};
pub(super) use flows::guard;
use groups::Groups;
use message::SendBuffers;
pub use options::SocketOptions;
pub use receive::{Ancillary, read_ancillary};
use receive::{Overflow, ReceiveBuffers};

/// Time after a socket's packet during which every call polls the sockets.
const RECENT: Duration = Duration::from_millis(1);

/// The unprivileged link: a UDP socket per local address, and more for sending.
///
/// The ICRC covers the IPv4 identification, which UDP sockets neither set nor show. The transport
/// relies on Linux: an unconnected socket that forbids fragmentation sends 0, and with
/// `UDP_SEGMENT` 0, 1, 2, … per call. On reception the transport solves for the value
/// (`roce_transport::wire`).
pub struct UdpLink {
    /// Receives for other users; declared first, to drop its FIFOs before the sockets.
    service: Option<Service>,
    bound: Vec<BoundAddress>,
    groups: Groups,
    limits: TransmitLimits,
    options: SocketOptions,
    send_buffers: SendBuffers,
    receive_buffers: ReceiveBuffers,
    drops_of_closed: u64,
    /// `None` for [`Locality::Network`].
    sharing: Option<Sharing>,
    /// Addresses where the service receives.
    clients: Clients,
    partition: Option<IdPartition>,
    schedule: PollSchedule,
    blocked: Option<(IpAddr, u16)>,
    /// Errors of omitted addresses.
    pub(crate) left_out: Vec<BindError>,
}

/// Poll schedule of the sockets beside `sharing`: a poll costs more than a packet through shared
/// memory.
#[derive(Default)]
struct PollSchedule {
    poll_at: Instant,
    last_arrival: Instant,
}

impl PollSchedule {
    fn polled(&mut self, now: Instant, has_arrived: bool) {
        if has_arrived {
            self.last_arrival = now;
        }
        let silence = now.since(self.last_arrival);
        let wait = if silence < RECENT { Duration::ZERO } else { CHECK_INTERVAL.min(silence / 8) };
        self.poll_at = now.plus(wait);
    }
}

impl UdpLink {
    /// Binds to addresses, each with its interface index (for link-local IPv6). Of several, omits
    /// those that the interface lacks or still probes, those of a stopped process, and unsupported
    /// IPv6.
    ///
    /// # Errors
    /// [`BindError`] of the first unusable address, or of an omitted address if none remains.
    pub fn bind(
        addresses: &[(IpAddr, u32)],
        locality: Locality,
        options: SocketOptions,
    ) -> Result<Self, BindError> {
        Self::on(addresses, locality, false, options)
    }

    /// Marks all further datagrams as built by an adapter: receivers through shared memory skip the
    /// ICRC.
    pub fn set_trusted(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.trusted = true;
        }
    }

    /// Binds to the first free address of 127.0.0.1 to 127.0.0.254 except `but`. If 127.0.0.1 is
    /// taken and 127.0.0.2 is not local, shares 127.0.0.1 where allowed.
    ///
    /// # Errors
    /// [`BindError::LoopbackFull`], [`BindError::NoLoopbackLeft`], [`BindError::LoopbackDown`] or
    /// [`BindError::System`].
    pub fn bind_loopback(
        but: Option<IpAddr>,
        locality: Locality,
        options: SocketOptions,
    ) -> Result<Self, BindError> {
        let addresses = (1..255).map(|last| IpAddr::from([127, 0, 0, last]));
        Self::bind_first(addresses, but, locality, options)
    }

    pub(super) fn bind_first(
        addresses: impl Iterator<Item = IpAddr>,
        but: Option<IpAddr>,
        locality: Locality,
        options: SocketOptions,
    ) -> Result<Self, BindError> {
        let first = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut taken = but;
        for address in addresses.filter(|&address| Some(address) != but) {
            match Self::on(&[(address, 0)], locality, true, options) {
                Err(BindError::Taken(_) | BindError::OtherUser { .. }) => taken = Some(address),
                Err(BindError::NotLocal(missing)) if missing == first => {
                    return Err(BindError::LoopbackDown);
                }
                // Some sandboxes lack the rest of 127.0.0.0/8: share the first address.
                Err(BindError::NotLocal(missing)) => {
                    return match Self::on(&[(first, 0)], locality, false, options) {
                        Err(BindError::Taken(_) | BindError::OtherUser { .. }) => {
                            let taken = taken.unwrap_or(first);
                            Err(BindError::NoLoopbackLeft { taken, missing })
                        }
                        other => other,
                    };
                }
                other => return other,
            }
        }
        Err(BindError::LoopbackFull)
    }

    fn on(
        addresses: &[(IpAddr, u32)],
        mut locality: Locality,
        exclusive: bool,
        options: SocketOptions,
    ) -> Result<Self, BindError> {
        let first = addresses.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |&(address, _)| address);
        let system = |source| BindError::System { address: first, source };
        if locality != Locality::Network && sealed::is_refused() {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                warn!(
                    target: notice::TARGET,
                    "the system refuses memfd_create: packets go through sockets only, and \
                     processes cannot share an address"
                );
            });
            locality = Locality::Network;
        }
        let shares = locality != Locality::Network;
        let mut sharing = shares.then(|| Sharing::new(locality)).transpose().map_err(system)?;
        let mut bound = Vec::new();
        let mut clients = Clients::default();
        let (mut missing, mut left_out) = (None, Vec::new());
        for &(address, interface) in addresses {
            let partition = clients.partition();
            match BoundAddress::open(address, interface, locality, exclusive, partition, &options) {
                Ok(Opened { bound: opened, acquired, client }) => {
                    bound.push(opened);
                    if let (Some(sharing), Some(acquired)) = (&mut sharing, acquired) {
                        sharing.add(acquired).map_err(system)?;
                    }
                    client.into_iter().try_for_each(|it| clients.add(it)).map_err(system)?;
                }
                Err(error @ BindError::NotLocal(_)) => missing = Some(error),
                Err(error @ BindError::Stopped { .. }) => left_out.push(error),
                // IPv6 is off, or denied to this process.
                Err(BindError::System { source, .. })
                    if address.is_ipv6() && notice::is_refusal(&source) =>
                {
                    left_out.push(BindError::NoIpv6 { address, source });
                }
                Err(error) => return Err(error),
            }
        }
        if bound.is_empty() {
            return Err(left_out.pop().or(missing).unwrap_or(BindError::NotLocal(first)));
        }
        let taken = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::Full(first),
            _ => system(error),
        };
        let mut partition = match (&mut sharing, clients.partition(), locality) {
            (Some(sharing), Some(given), _) => {
                sharing.adopt_partition(given, clients.addresses()).map_err(taken)?;
                Some(given)
            }
            (
                Some(sharing),
                None,
                Locality::SharedAddress { partition } | Locality::SharedInProcess { partition },
            ) => sharing.choose_partition(partition).map_err(taken)?,
            (_, given, _) => given,
        };
        let mut service = None;
        if options.receives_for_users {
            let own = bound.iter().map(|it| (it.address, it.interface));
            let buffers = bound.iter().filter_map(|it| it.socket.recv_buffer_size().ok());
            let buffer = buffers.min().unwrap_or(usize::MAX);
            let directory = Path::new(DIRECTORY);
            service = Some(Service::new(directory, &own.collect::<Vec<_>>(), buffer)?);
            partition = IdPartition::new(OWN);
        }
        let segments = message::max_segments().min(options.segments.unwrap_or(usize::MAX)).max(1);
        Ok(Self {
            service,
            bound,
            groups: Groups::new().map_err(system)?,
            limits: TransmitLimits { segments, bytes: MAX_RUN },
            options,
            send_buffers: SendBuffers::default(),
            receive_buffers: ReceiveBuffers::new().map_err(system)?,
            drops_of_closed: 0,
            sharing,
            clients,
            partition,
            schedule: PollSchedule::default(),
            blocked: None,
            left_out,
        })
    }

    fn at(&self, address: IpAddr) -> Option<&BoundAddress> {
        self.bound.iter().find(|bound| bound.address == address)
    }

    /// Sends the first run and those that fit into its call. Returns their number, and whether more
    /// may follow at once.
    fn send_first(
        &mut self,
        now: Instant,
        bytes: &[u8],
        runs: &[Transmit],
    ) -> io::Result<(usize, bool)> {
        let Self { bound, sharing, send_buffers, .. } = self;
        let Some(first) = runs.first() else { return Ok((0, false)) };
        let gone = |message: String| io::Error::new(io::ErrorKind::AddrNotAvailable, message);
        let Some(bound) = bound.iter().find(|it| it.address == first.src) else {
            return Err(gone(format!("{} is no longer an address of this device", first.src)));
        };
        let Some(socket) = bound.sender(first.src_port) else {
            return Err(gone(format!("{} is no longer a port of {}", first.src_port, first.src)));
        };
        let same = |run: &&Transmit| (run.src, run.src_port) == (first.src, first.src_port);
        let mut count = runs.iter().take_while(same).count();
        if let Some(sharing) = sharing {
            let same = runs[..count].iter().take_while(|run| run.dst == first.dst).count();
            if let Some(sent) = sharing.paths.send(now, bytes, &runs[..same], sharing.trusted) {
                // If the channel breaks, stop: the rest may lack the ICRC.
                return sent.map(|sent| (sent, sent == same));
            }
            let far = |run: &&Transmit| !sharing.reaches(now, bytes, run, bound.interface);
            count = runs[..count].iter().take_while(far).count().max(1);
        }
        let to = |run: &Transmit| bound.peer(run.dst);
        let sent = send_buffers.send(socket, bytes, &runs[..count], to)?;
        if sent == 0 {
            self.blocked = Some((first.src, first.src_port));
        }
        Ok((sent, sent > 0))
    }
}

opaque_debug!(UdpLink, |it| addresses: it.addresses(), limits: it.limits);

impl Link for UdpLink {
    fn addresses(&self) -> Vec<IpAddr> {
        self.bound.iter().map(|bound| bound.address).collect()
    }

    fn limits(&self) -> TransmitLimits {
        self.limits
    }

    fn source_port(&self) -> SourcePort {
        // Responses must reach the receiving socket, and no receiver checks the source port.
        SourcePort::Fixed(ROCE_UDP_PORT)
    }

    fn flow_ports(&self, address: IpAddr) -> Vec<u16> {
        let flows = self.at(address).into_iter().flat_map(|bound| &bound.flows);
        flows.map(|flow| flow.port).collect()
    }

    fn control_port(&self, address: IpAddr) -> Option<u16> {
        self.at(address)?.control
    }

    fn receive_buffer(&self) -> Option<usize> {
        let own = self.bound.iter().filter(|bound| bound.control.is_none());
        let sizes = own.filter_map(|bound| bound.socket.recv_buffer_size().ok());
        sizes.chain(self.clients.receive_buffer()).min()
    }

    fn socket_drops(&self) -> u64 {
        let dropped = self.bound.iter().map(BoundAddress::dropped).sum::<u64>();
        let lost = self.service.as_ref().map_or(0, |service| service.lost);
        self.drops_of_closed + dropped + self.groups.socket_drops() + lost
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        self.blocked = None;
        let mut taken = 0;
        while taken < runs.len() {
            match self.send_first(now, bytes, &runs[taken..]) {
                Ok((count, goes_on)) => {
                    taken += count;
                    if !goes_on {
                        break;
                    }
                }
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break, // the next call reports it
            }
        }
        Ok(taken)
    }

    fn needs_icrc(&self, bytes: &[u8], run: &Transmit) -> bool {
        self.sharing.as_ref().is_none_or(|sharing| sharing.needs_icrc(bytes, run))
    }

    fn blocked(&self) -> Option<BorrowedFd<'_>> {
        let (address, source_port) = self.blocked?;
        self.at(address)?.sender(source_port).map(AsFd::as_fd)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        self.receive_runs(now, &mut |run| run.for_each(&mut *sink))
    }

    fn receive_runs(&mut self, now: Instant, sink: &mut RunSink<'_>) -> io::Result<usize> {
        let Self { service, bound, groups, receive_buffers, sharing, clients, schedule, .. } = self;
        service.iter_mut().for_each(|service| service.attend(now));
        let mut count = 0;
        let mut receive =
            |socket: &Socket, overflow: &mut Overflow, dst, sharing: &mut Option<Sharing>| {
                receive_buffers.receive(socket, overflow, |meta, payload| {
                    let Ancillary { segment, traffic_class, hop_limit, .. } = meta.ancillary;
                    let net = NetHeader {
                        src: meta.source.ip().to_canonical(),
                        dst,
                        src_port: meta.source.port(),
                        traffic_class,
                        hop_limit,
                        ident: Ident::Likely(0),
                        frame: FrameFields::default(),
                    };
                    let meta = DatagramMeta { congested: meta.congested, ..Default::default() };
                    let run = DatagramRun { net: &net, bytes: payload, segment, meta };
                    let sharing = sharing.as_mut().filter(|it| it.is_shared);
                    match (&mut *service, sharing) {
                        (Some(service), _) => service.forward(&run, sink),
                        (None, Some(sharing)) => sharing.forward_run(now, &run, sink),
                        (None, None) => sink(&run),
                    }
                })
            };
        let settled = sharing.as_mut().is_some_and(|sharing| {
            sharing.attend(now);
            while let Some((address, socket)) = sharing.poll_member() {
                if let Some(bound) = bound.iter_mut().find(|it| it.address == address) {
                    let overflow = Overflow::of(&socket);
                    bound.member = Some((socket, overflow));
                }
            }
            sharing.inbox.is_settled()
        });
        // Before the first packet from shared memory: the sockets hold older datagrams.
        if !settled || schedule.poll_at <= now {
            for it in bound {
                let is_peer = sharing.as_ref().is_some_and(|sharing| sharing.is_peer(it.address));
                if it.control.is_none() && !is_peer {
                    count += receive(&it.socket, &mut it.overflow, it.address, sharing)?;
                }
                if let Some((socket, overflow)) = &mut it.member {
                    count += receive(socket, overflow, it.address, sharing)?;
                }
            }
            groups.each_ready(|member| {
                count += receive(&member.socket, &mut member.overflow, member.group, sharing)?;
                Ok(())
            })?;
            schedule.polled(now, count > 0);
        }
        count += clients.receive(now, sink);
        if let Some(sharing) = sharing {
            count += sharing.inbox.receive(sink);
        }
        Ok(count)
    }

    fn park(&mut self) -> bool {
        self.sharing.as_mut().is_none_or(|sharing| sharing.inbox.park())
    }

    fn unpark(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.inbox.unpark();
        }
        self.look();
    }

    fn look(&mut self) {
        self.clients.look_at = Instant::ZERO;
        self.service.iter_mut().for_each(Service::look);
        if let Some(sharing) = &mut self.sharing {
            sharing.look();
        }
        self.schedule.poll_at = Instant::ZERO;
    }

    fn deadline(&self) -> Option<Instant> {
        let sharing = self.sharing.as_ref().and_then(Sharing::deadline);
        sharing.into_iter().chain(self.clients.deadline()).min()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        // `sharing` watches sockets that other processes may read.
        let is_watched = |bound: &&BoundAddress| {
            self.sharing.as_ref().is_some_and(|sharing| sharing.contains(bound.address))
        };
        let is_own = |bound: &&BoundAddress| bound.control.is_none() && !is_watched(bound);
        let own = self.bound.iter().filter(is_own);
        let sockets = own.map(|bound| bound.socket.as_fd());
        sockets
            .chain([self.groups.descriptor()])
            .chain(self.sharing.iter().flat_map(Sharing::descriptors))
            .chain(self.clients.descriptor())
            .chain(self.service.as_ref().map(|service| service.epoll.as_fd()))
            .collect()
    }

    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        Some(self)
    }

    fn sharing(&mut self) -> Option<&mut dyn SharingLink> {
        let is_one =
            self.sharing.is_some() || !self.clients.clients.is_empty() || self.service.is_some();
        if is_one { Some(self) } else { None }
    }

    fn address_set(&mut self) -> Option<&mut dyn AddressSetLink> {
        Some(self)
    }
}

impl MulticastLink for UdpLink {
    fn prepare_join(&mut self, group: IpAddr) -> Preparation<io::Error> {
        Groups::prepare(group, &self.bound, self.options)
    }

    fn join(&mut self, group: IpAddr, prepared: Prepared) -> io::Result<()> {
        let socket = prepared.downcast().map_err(|_| io::ErrorKind::InvalidInput)?;
        self.groups.join(group, *socket)
    }

    fn leave(&mut self, group: IpAddr) -> Option<Prepared> {
        self.groups.leave(group).map(|socket| Box::new(socket) as Prepared)
    }
}

impl AddressSetLink for UdpLink {
    fn prepare_address(&mut self, address: IpAddr, interface: u32) -> Preparation<BindError> {
        let sharing = self.sharing.as_ref();
        let locality = sharing.map_or(Locality::Network, |sharing| sharing.locality);
        let (options, partition) = (self.options, self.partition);
        Box::new(move || {
            let opened =
                BoundAddress::open(address, interface, locality, false, partition, &options)?;
            Ok(Box::new(opened))
        })
    }

    fn add_address(&mut self, address: IpAddr, prepared: Prepared) -> Result<(), BindError> {
        let Ok(opened) = prepared.downcast() else { return Err(BindError::NotLocal(address)) };
        let Opened { bound, acquired, client } = *opened;
        let system = |source| BindError::System { address, source };
        if let (Some(sharing), Some(acquired)) = (&mut self.sharing, acquired) {
            sharing.add(acquired).map_err(system)?;
        }
        if let Some(service) = &mut self.service {
            service.open_admission(address, bound.interface)?;
        }
        self.bound.push(bound);
        if let Some(client) = client {
            let interface = client.interface;
            self.clients.add(client).map_err(system)?;
            self.sharing.iter_mut().for_each(|it| it.listen_directly(address, interface));
        }
        Ok(())
    }

    fn remove_address(&mut self, address: IpAddr) {
        self.service.iter_mut().for_each(|service| service.close_admission(address));
        for bound in self.bound.extract_if(.., |bound| bound.address == address) {
            self.drops_of_closed += bound.dropped();
            if self.options.receives_for_users {
                kept::discard(Kept::Socket, address, bound.interface);
            }
        }
        self.clients.forget(address);
        if let Some(sharing) = &mut self.sharing {
            sharing.forget(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_is_left_to_others() {
        let bind = |but| {
            let options = SocketOptions::default();
            UdpLink::bind_loopback(but, Locality::Network, options).unwrap().addresses()
        };
        let free = bind(None);
        assert!(free[0].is_loopback());
        assert_ne!(bind(Some(free[0])), free);
    }

    #[test]
    fn every_address_has_its_ports() {
        let [first, second]: [IpAddr; 2] = [[127, 79, 1, 1].into(), [127, 79, 1, 2].into()];
        let options = SocketOptions { source_ports: Some(4), ..SocketOptions::default() };
        let mut link = UdpLink::bind(&[(first, 0)], Locality::Network, options).unwrap();
        assert_eq!((link.flow_ports(first).len(), link.flow_ports(second).len()), (4, 0));
        let prepared = link.prepare_address(second, 0)().unwrap();
        link.add_address(second, prepared).unwrap();
        assert_eq!(link.flow_ports(second).len(), 4);
        link.bound[1].overflow.dropped = 3;
        link.remove_address(second);
        assert_eq!((link.flow_ports(second).len(), link.socket_drops()), (0, 3));
        // A closed port's run is lost: from another port, its ICRC is wrong.
        let run = Transmit {
            src: first,
            dst: first,
            src_port: 0xC000,
            traffic_class: 0,
            hop_limit: 64,
            segment: 1,
            range: 0..1,
            frame: FrameFields::default(),
        };
        let error = link.send(Instant::ZERO, &[0], &[run]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
