//! The `udp` link.

mod groups;
mod message;
mod port;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    addr::ROCE_UDP_PORT,
    time::Instant,
    wire::{Ident, NetHeader},
};
use socket2::Socket;

use super::{AddressSetLink, Datagram, Link, MulticastLink, SharingLink, shm::ShmLink};
use crate::bind::BindError;
use groups::Groups;
use message::{ReceiveBuffers, SendBuffers};
use port::Port;

/// Greatest sum of the payloads of one call: as much as both IPv4 and IPv6 carry in one piece to
/// the receiver.
const MAX_RUN: usize = 65_487;
/// Longest time between two looks at the sockets while packets come through shared memory. When
/// none has come by the sockets lately, these are looked at whenever the silence has become an
/// eighth longer, since a look costs more than a packet through shared memory.
const LOOK: Duration = Duration::from_millis(1);
/// Time after a packet by the sockets for which they are looked at in every call.
const LATELY: Duration = Duration::from_millis(1);

/// Treatment of other processes of the same user on the same host, in the same namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Locality {
    /// As any other host: all packets take the network stack.
    Network,
    /// Packets to and from them go through memory that the two processes share. They are the same
    /// packets, but nothing on the host sees them pass, neither a packet filter nor tcpdump.
    SharedMemory,
    /// As `SharedMemory`, and they can have the same addresses at the same time. Each then has a
    /// [partition](super::SharingLink::partition) of the numbers. The first receives for all, so it
    /// must [receive](Link::receive) whether or not it expects something itself; from one that does
    /// not, another takes over.
    SharedAddress {
        /// Partition to take if it is free, modulo the number of partitions; else the next one that
        /// is.
        partition: u8,
    },
}

/// The link that needs no privilege: one UDP socket per local address.
///
/// The ICRC covers the IPv4 identification, which a UDP socket neither sets nor shows. An
/// unconnected socket that forbids fragmentation sends identification 0, and with `UDP_SEGMENT` 0,
/// 1, 2, … within one call: that is what the transport is told to count on. On receiving, the
/// transport solves for it (see `roce_transport::wire`).
pub struct UdpLink {
    ports: Vec<Port>,
    groups: Groups,
    limits: TransmitLimits,
    send_buffers: SendBuffers,
    receive_buffers: ReceiveBuffers,
    /// Other devices of this host, unless everything is to take the network stack.
    shm: Option<ShmLink>,
    /// Time of the next look at the sockets, if there is `shm`.
    look_at: Instant,
    /// Time at which something last came by the sockets.
    last_arrival: Instant,
}

impl UdpLink {
    /// A link on these addresses; the number is the interface's index, which a link-local IPv6
    /// address needs. Of several, one that the interface does not have (any more, or not yet, while
    /// duplicate address detection runs) is left out.
    ///
    /// # Errors
    /// See [`BindError`]: the first address that cannot be used; [`BindError::NotLocal`] when none
    /// is left.
    pub fn bind(addresses: &[(IpAddr, u32)], locality: Locality) -> Result<Self, BindError> {
        Self::on(addresses, locality, false)
    }

    /// Declares that all that is sent from now on is, byte for byte, what an adapter has built, so
    /// that no process that gets it through shared memory needs to check the ICRC.
    pub fn set_trusted(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.set_trusted();
        }
    }

    /// A link on the first loopback address that is free, from 127.0.0.1 to 127.0.0.254.
    ///
    /// # Errors
    /// [`BindError::LoopbackFull`] or [`BindError::System`].
    pub fn bind_loopback(locality: Locality) -> Result<Self, BindError> {
        for last in 1..255 {
            match Self::on(&[(Ipv4Addr::new(127, 0, 0, last).into(), 0)], locality, true) {
                Err(BindError::Taken(_)) => {}
                other => return other,
            }
        }
        Err(BindError::LoopbackFull)
    }

    fn on(
        addresses: &[(IpAddr, u32)],
        locality: Locality,
        exclusive: bool,
    ) -> Result<Self, BindError> {
        let first = addresses.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |&(address, _)| address);
        let system = |source| BindError::System { address: first, source };
        let mut shm = match locality {
            Locality::Network => None,
            Locality::SharedMemory => Some(ShmLink::new(false).map_err(system)?),
            Locality::SharedAddress { .. } => Some(ShmLink::new(true).map_err(system)?),
        };
        let mut ports = Vec::new();
        let mut missing = None;
        for &(address, interface) in addresses {
            match Port::open(address, interface, shm.as_mut(), exclusive) {
                Ok(port) => ports.push(port),
                Err(error @ BindError::NotLocal(_)) => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        if ports.is_empty() {
            return Err(missing.unwrap_or(BindError::NotLocal(first)));
        }
        if let (Some(shm), Locality::SharedAddress { partition }) = (&mut shm, locality) {
            shm.choose_partition(partition).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => BindError::Taken(first),
                _ => system(error),
            })?;
        }
        Ok(Self {
            ports,
            groups: Groups::new().map_err(system)?,
            limits: TransmitLimits { segments: message::max_segments(), bytes: MAX_RUN },
            send_buffers: SendBuffers::default(),
            receive_buffers: ReceiveBuffers::new(),
            shm,
            look_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
        })
    }
}

impl fmt::Debug for UdpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpLink")
            .field("addresses", &self.addresses())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Link for UdpLink {
    fn addresses(&self) -> Vec<IpAddr> {
        self.ports.iter().map(|port| port.address).collect()
    }

    fn limits(&self) -> TransmitLimits {
        self.limits
    }

    fn source_port(&self) -> SourcePort {
        // One socket both receives and sends: a peer's answers must find it, and no receiver looks
        // at the source port.
        SourcePort::Fixed(ROCE_UDP_PORT)
    }

    fn receive_buffer(&self) -> Option<usize> {
        let sizes = self.ports.iter().filter_map(|port| port.socket.recv_buffer_size().ok());
        sizes.min()
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<()> {
        let mut result = Ok(());
        let Self { ports, shm, send_buffers, .. } = self;
        for group in runs.chunk_by(|a, b| a.src == b.src) {
            let Some(port) = ports.iter().find(|port| port.address == group[0].src) else {
                let message = format!("{} is no address of this device any more", group[0].src);
                result = Err(io::Error::new(io::ErrorKind::AddrNotAvailable, message));
                continue;
            };
            let to = |run: &Transmit| Port::socket_address(run.dst, port.interface);
            let Some(shm) = shm else {
                result = send_buffers.send(&port.socket, bytes, group, to).and(result);
                continue;
            };
            // runs that go the same way go out with one call
            let mut rest = group;
            while let Some(first) = rest.first() {
                let mut count = rest.iter().take_while(|run| run.dst == first.dst).count();
                let sent = shm.send(now, bytes, &rest[..count]).unwrap_or_else(|| {
                    let far = |run: &&Transmit| !shm.reaches(now, run.src, run.dst, port.interface);
                    count = count.max(rest.iter().take_while(far).count());
                    send_buffers.send(&port.socket, bytes, &rest[..count], to)
                });
                rest = &rest[count..];
                result = sent.and(result);
            }
        }
        result
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        let Self { ports, groups, receive_buffers, shm, look_at, last_arrival, .. } = self;
        let mut count = 0;
        let mut receive = |socket: &Socket, dst: IpAddr, shm: &mut Option<ShmLink>| {
            receive_buffers.receive(socket, |meta, payload| {
                for (index, datagram) in payload.chunks(meta.segment.max(1)).enumerate() {
                    let net = NetHeader {
                        src: meta.source.ip().to_canonical(),
                        dst,
                        src_port: meta.source.port(),
                        traffic_class: meta.traffic_class,
                        hop_limit: meta.hop_limit,
                        ident: Ident::Likely(index as u16),
                    };
                    let arrived = Datagram::new(&net, datagram);
                    if !shm.as_mut().is_some_and(|shm| shm.forward(&arrived)) {
                        sink(&arrived);
                    }
                }
            })
        };
        let settled = shm.as_mut().is_some_and(|shm| {
            shm.attend(now);
            shm.is_settled()
        });
        // before the first that comes through shared memory: what was sent before it is here
        if !settled || *look_at <= now {
            for port in ports {
                if port.is_read_here(shm.as_ref()) {
                    count += receive(&port.socket, port.address, shm)?;
                }
            }
            for (group, socket) in groups.ready()? {
                count += receive(socket, *group, shm)?;
            }
            if count > 0 {
                *last_arrival = now;
            }
            let silence = now.since(*last_arrival);
            *look_at = if silence < LATELY { now } else { now.plus(LOOK.min(silence / 8)) };
        }
        if let Some(shm) = shm {
            count += shm.receive(now, sink);
        }
        Ok(count)
    }

    fn park(&mut self) -> bool {
        self.shm.as_mut().is_none_or(ShmLink::park)
    }

    fn unpark(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.unpark();
        }
        self.look_at = Instant::ZERO; // it may be the sockets that have woken it
    }

    fn deadline(&self) -> Option<Instant> {
        self.shm.as_ref().and_then(ShmLink::deadline)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        // `shm` watches those that other processes may read
        let is_watched =
            |port: &&Port| self.shm.as_ref().is_some_and(|shm| shm.watches(port.address));
        let own = self.ports.iter().filter(|port| !is_watched(port));
        let sockets = own.map(|port| port.socket.as_fd());
        sockets
            .chain([self.groups.descriptor()])
            .chain(self.shm.as_ref().map(ShmLink::descriptor))
            .collect()
    }

    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        Some(self)
    }

    fn sharing(&mut self) -> Option<&mut dyn SharingLink> {
        self.shm.as_mut().map(|shm| shm as _)
    }

    fn address_set(&mut self) -> Option<&mut dyn AddressSetLink> {
        Some(self)
    }
}

impl MulticastLink for UdpLink {
    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.groups.join(group, &self.ports)
    }

    fn leave(&mut self, group: IpAddr) {
        self.groups.leave(group);
    }
}

impl AddressSetLink for UdpLink {
    fn add_address(&mut self, address: IpAddr, interface: u32) -> Result<(), BindError> {
        self.ports.push(Port::open(address, interface, self.shm.as_mut(), false)?);
        Ok(())
    }

    fn remove_address(&mut self, address: IpAddr) {
        self.ports.retain(|port| port.address != address);
        if let Some(shm) = &mut self.shm {
            shm.forget(address);
        }
    }
}
