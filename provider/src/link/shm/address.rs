//! An address that several processes share.
//!
//! The first process that opens an address is its *host*, by the socket that has the address's
//! name. It alone reads the UDP socket. Who opens the address later becomes a *peer*: it is given
//! the UDP socket, to send from, and a ring, into which the host writes whatever [is
//! for](Addressee) the peer's partition, or for a service that only the peer listens for. When the
//! host ends, one of the peers gets the name and is the host from then on; the UDP socket has never
//! been closed meanwhile, and the others become its peers.

use std::{
    collections::BTreeSet,
    io, mem,
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use roce_transport::{
    cm::ServiceId,
    share::{Addressee, IdPartition},
    time::Instant,
    wire::{Ident, NetHeader},
};
use rustix::net::RecvFlags;

use super::{
    Datagram,
    claim::{ClaimTable, Entry},
    ring::{LONGEST, RunHeader, Writer},
    sender::ShmSender,
    socket::{mapped, receive_with, send_with},
};

/// What a peer can say in one message: its partition and its services.
const MOST_SERVICES: usize = 8192;

/// Requests that wait for somebody to say that they are for it.
const MOST_WAITING: usize = 64;

/// The addresses of a device, as far as others may share them.
#[derive(Default)]
pub(super) struct SharedAddresses {
    /// Which part of the numbers this device has, on all its addresses.
    partition: Option<IdPartition>,
    addresses: Vec<SharedAddress>,
    peers: Vec<Peer>,
    /// Requests for services that are listened for by one who has not yet said so.
    waiting: Vec<(ServiceId, NetHeader, Box<[u8]>)>,
    scratch: Vec<u8>,
    forwarded: u64,
    /// Something was written to a peer's ring since they were woken.
    written: bool,
    /// Whether there is, or was, anybody else at any of the addresses.
    is_shared: bool,
}

/// An address.
pub(super) struct SharedAddress {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    /// The UDP socket.
    pub(super) udp: OwnedFd,
    register: ClaimTable,
    /// For which this device listens.
    services: BTreeSet<ServiceId>,
    pub(super) role: Role,
}

pub(super) enum Role {
    Owner,
    /// With a connection to the host, which is over when the host is.
    Peer(Arc<OwnedFd>),
    /// Has asked the new host for a room.
    Asking(OwnedFd),
    /// The host has ended. Who is the next is looked at from this time on.
    Looking(Instant),
}

/// Another process at one of this one's addresses.
struct Peer {
    address: IpAddr,
    socket: OwnedFd,
    /// Not yet said.
    partition: Option<IdPartition>,
    services: BTreeSet<ServiceId>,
    way: ShmSender,
}

/// What a peer gets.
pub(super) struct Grant {
    pub(super) ring: OwnedFd,
    pub(super) udp: OwnedFd,
    pub(super) register: OwnedFd,
}

impl Grant {
    /// What the host has given; nothing while it has not answered.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Self>> {
        match receive_with(socket, &mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
            Ok((0, _)) => Err(io::ErrorKind::ConnectionRefused.into()),
            Ok((_, given)) => {
                let [ring, udp, register] =
                    given.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                Ok(Some(Self { ring, udp, register }))
            }
        }
    }
}

impl SharedAddresses {
    pub(super) const fn partition(&self) -> Option<IdPartition> {
        self.partition
    }

    /// Datagrams that were for peers.
    pub(super) const fn forwarded(&self) -> u64 {
        self.forwarded
    }

    /// Whether someone else reads the UDP socket of this address.
    pub(super) fn is_peer(&self, address: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|shared| shared.address == address && !matches!(shared.role, Role::Owner))
    }

    /// When it is to be looked at next who is the host of an address.
    pub(super) fn looks_at(&self) -> Option<Instant> {
        let due = |shared: &SharedAddress| {
            if let Role::Looking(due) = shared.role { Some(due) } else { None }
        };
        self.addresses.iter().filter_map(due).min()
    }

    /// Has it looked for the host of an address at this time.
    pub(super) fn look_again(&mut self, address: IpAddr, due: Instant) {
        self.addresses
            .iter_mut()
            .filter(|shared| shared.address == address)
            .for_each(|shared| shared.role = Role::Looking(due));
    }

    pub(super) fn addresses(&mut self) -> impl Iterator<Item = &mut SharedAddress> {
        self.addresses.iter_mut()
    }

    /// This process is the host of an address.
    pub(super) fn found(
        &mut self,
        address: IpAddr,
        interface: u32,
        udp: OwnedFd,
    ) -> io::Result<()> {
        self.add(address, interface, udp, ClaimTable::new()?, Role::Owner)
    }

    /// This process has become a peer.
    pub(super) fn join(
        &mut self,
        address: IpAddr,
        interface: u32,
        udp: OwnedFd,
        register: &OwnedFd,
        host: Arc<OwnedFd>,
    ) -> io::Result<()> {
        self.add(address, interface, udp, ClaimTable::join(register)?, Role::Peer(host))?;
        self.is_shared = true;
        Ok(())
    }

    fn add(
        &mut self,
        address: IpAddr,
        interface: u32,
        udp: OwnedFd,
        register: ClaimTable,
        role: Role,
    ) -> io::Result<()> {
        if let Some(partition) = self.partition {
            register.take(Entry::Partition(partition))?;
        }
        self.addresses.push(SharedAddress {
            address,
            interface,
            udp,
            register,
            services: BTreeSet::new(),
            role,
        });
        self.announce(address);
        Ok(())
    }

    /// Chooses a partition that nobody else has on any of the addresses; `first` is tried first.
    /// Without addresses that can be shared there is no need for one.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_slot(&mut self, first: u8) -> io::Result<()> {
        if self.addresses.is_empty() {
            return Ok(());
        }
        let numbers = (0..IdPartition::COUNT).filter_map(|step| {
            IdPartition::new((first % IdPartition::COUNT + step) % IdPartition::COUNT + 1)
        });
        for partition in numbers {
            let had =
                |shared: &SharedAddress| shared.register.take(Entry::Partition(partition)).is_err();
            let Some(taken) = self.addresses.iter().position(had) else {
                self.partition = Some(partition);
                let addresses: Vec<_> =
                    self.addresses.iter().map(|shared| shared.address).collect();
                addresses.into_iter().for_each(|address| self.announce(address));
                return Ok(());
            };
            self.addresses[..taken]
                .iter()
                .for_each(|shared| shared.register.give_back(Entry::Partition(partition)));
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// The address is this process's no more.
    pub(super) fn forget(&mut self, address: IpAddr) -> Option<SharedAddress> {
        self.peers.retain(|peer| peer.address != address);
        let place = self.addresses.iter().position(|shared| shared.address == address)?;
        Some(self.addresses.swap_remove(place))
    }

    /// Listens for a service.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process does so at this address.
    pub(super) fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        let Some(shared) = self.addresses.iter_mut().find(|shared| shared.address == address)
        else {
            return Ok(());
        };
        shared.register.take(Entry::Service(service))?;
        shared.services.insert(service);
        self.announce(address);
        Ok(())
    }

    /// Whether another process listens for it.
    pub(super) fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.addresses.iter().any(|shared| {
            shared.address == address && shared.register.is_had(Entry::Service(service))
        })
    }

    /// Listens for it no more.
    pub(super) fn release(&mut self, service: ServiceId, address: IpAddr) {
        let Some(shared) = self.addresses.iter_mut().find(|shared| shared.address == address)
        else {
            return;
        };
        if shared.services.remove(&service) {
            shared.register.give_back(Entry::Service(service));
            self.announce(address);
        }
    }

    /// Tells the host of an address, if it is another process, what is for this one.
    pub(super) fn announce(&mut self, address: IpAddr) {
        let Some(partition) = self.partition else { return };
        let Some(shared) = self.addresses.iter_mut().find(|shared| shared.address == address)
        else {
            return;
        };
        let Role::Peer(host) = &shared.role else { return };
        let services =
            shared.services.iter().take(MOST_SERVICES).flat_map(|service| service.0.to_ne_bytes());
        let message: Vec<u8> = [partition.get()].into_iter().chain(services).collect();
        if send_with(host, &message, &[]).is_err() {
            shared.role = Role::Looking(Instant::ZERO); // it is gone, or so busy that it must be asked anew
        }
    }

    /// Lets in a peer, who is woken by `wakeup`.
    pub(super) fn accept_peer(
        &mut self,
        address: IpAddr,
        socket: OwnedFd,
        wakeup: OwnedFd,
    ) -> io::Result<()> {
        let shared = self
            .addresses
            .iter()
            .find(|shared| shared.address == address && matches!(shared.role, Role::Owner));
        let shared = shared.ok_or(io::ErrorKind::PermissionDenied)?;
        let (writer, memory) = Writer::new()?;
        send_with(&socket, &[0], &[memory.as_fd(), shared.udp.as_fd(), shared.register.as_fd()])?;
        let way = ShmSender::new(writer, wakeup);
        self.is_shared = true;
        self.peers.push(Peer { address, socket, partition: None, services: BTreeSet::new(), way });
        Ok(())
    }

    /// Listens to what peers have to say, and takes leave of those that have gone.
    pub(super) fn read_updates(&mut self) {
        self.read_peer_updates();
        for (service, net, bytes) in mem::take(&mut self.waiting) {
            self.ask(service, &Datagram::new(&net, &bytes));
        }
    }

    fn read_peer_updates(&mut self) {
        let mut message = Vec::new();
        self.peers.retain_mut(|peer| {
            loop {
                message.resize(1 + 8 * MOST_SERVICES, 0);
                match rustix::net::recv(&peer.socket, &mut message[..], RecvFlags::DONTWAIT) {
                    Ok((_, 0)) => return false,
                    Ok((_, length)) => peer.note(&message[..length]),
                    Err(error) => {
                        return matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR);
                    }
                }
            }
        });
    }

    /// Hands a datagram on to whom it is for, if that is not this device. Returns whether it was.
    pub(super) fn forward(&mut self, datagram: &Datagram<'_>) -> bool {
        if !self.is_shared {
            return false;
        }
        let dst = datagram.net.dst;
        let to = match Addressee::of(datagram.bytes) {
            Addressee::Unknown => return false,
            Addressee::Partition(partition) if Some(partition) == self.partition => return false,
            Addressee::Partition(partition) => {
                if self.peers.iter().any(|peer| peer.partition.is_none()) {
                    self.read_peer_updates(); // it may have said just now which one it has
                }
                self.peer(|peer| peer.address == dst && peer.partition == Some(partition))
            }
            Addressee::Service(service) => {
                if self
                    .addresses
                    .iter()
                    .any(|shared| shared.address == dst && shared.services.contains(&service))
                {
                    return false;
                }
                self.read_peer_updates(); // one may have begun to listen just now
                return self.ask(service, datagram);
            }
            Addressee::Somebody => {
                let places: Vec<_> = (0..self.peers.len())
                    .filter(|&place| self.peers[place].address == dst)
                    .collect();
                places.into_iter().for_each(|place| self.forward_to(place, datagram));
                return false;
            }
        };
        if let Some(place) = to {
            self.forward_to(place, datagram);
        }
        to.is_some()
    }

    /// Hands a request on to whoever listens for the service. Returns whether anybody does.
    fn ask(&mut self, service: ServiceId, request: &Datagram<'_>) -> bool {
        let dst = request.net.dst;
        if let Some(place) =
            self.peer(|peer| peer.address == dst && peer.services.contains(&service))
        {
            self.forward_to(place, request);
            return true;
        }
        // when the host has changed, it may take a moment until all have come
        let is_had = self.is_claimed(service, dst);
        if is_had && self.waiting.len() < MOST_WAITING {
            self.waiting.push((service, *request.net, request.bytes.into()));
        }
        is_had
    }

    fn peer(&self, is: impl Fn(&Peer) -> bool) -> Option<usize> {
        self.peers.iter().position(is)
    }

    fn forward_to(&mut self, place: usize, datagram: &Datagram<'_>) {
        let &Datagram { net, bytes, meta } = datagram;
        let length = ForwardHeader::LEN + bytes.len();
        if length > LONGEST {
            return; // no packet is as long
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&ForwardHeader::of(net).0);
        self.scratch.extend_from_slice(bytes);
        let NetHeader { traffic_class, hop_limit, .. } = *net;
        let header = RunHeader {
            length,
            segment: length,
            traffic_class,
            hop_limit,
            checksum_verified: meta.checksum_verified,
        };
        // a ring that is full or broken loses it, as a wire would
        let _ = self.peers[place].way.send(header, &self.scratch);
        self.forwarded += 1;
        self.written = true;
    }

    /// Writes what found no room and wakes those who sleep. Returns whether nothing is left to
    /// write.
    pub(super) fn flush(&mut self) -> bool {
        if !self.written {
            return true;
        }
        self.peers.retain_mut(|peer| peer.way.write_backlog().is_ok());
        self.written = false;
        for peer in &self.peers {
            self.written |= !peer.way.wake();
        }
        !self.written
    }
}

impl Peer {
    fn note(&mut self, message: &[u8]) {
        let Some((&partition, services)) = message.split_first() else { return };
        self.partition = IdPartition::new(partition);
        self.services = services
            .as_chunks()
            .0
            .iter()
            .map(|service| ServiceId(u64::from_ne_bytes(*service)))
            .collect();
    }
}

/// What stands before a datagram that is handed on: where it comes from, and what is known of its
/// identification.
pub(super) struct ForwardHeader([u8; ForwardHeader::LEN]);

impl ForwardHeader {
    pub(super) const LEN: usize = 24;

    fn of(net: &NetHeader) -> Self {
        let mut note = [0; Self::LEN];
        let (kind, id) = match net.ident {
            Ident::Likely(id) => (0, id),
            Ident::Known { id, dont_fragment } => (1 + u8::from(dont_fragment), id),
        };
        note[..16].copy_from_slice(&mapped(net.src).octets());
        note[16..18].copy_from_slice(&net.src_port.to_ne_bytes());
        note[18..20].copy_from_slice(&id.to_ne_bytes());
        note[20] = kind;
        Self(note)
    }

    /// The note and the datagram behind it, with what the ring says of it.
    pub(super) fn read<'a>(
        header: &RunHeader,
        dst: IpAddr,
        bytes: &'a [u8],
    ) -> Option<(NetHeader, &'a [u8])> {
        let (note, datagram) = bytes.split_first_chunk::<{ Self::LEN }>()?;
        let (src, rest) = note.split_first_chunk::<16>()?;
        let word = |at: usize| u16::from_ne_bytes([rest[at], rest[at + 1]]);
        let (src_port, id) = (word(0), word(2));
        let ident = match rest[4] {
            0 => Ident::Likely(id),
            kind => Ident::Known { id, dont_fragment: kind > 1 },
        };
        let src = Ipv6Addr::from(*src).to_canonical();
        let &RunHeader { traffic_class, hop_limit, .. } = header;
        Some((NetHeader { src, dst, src_port, traffic_class, hop_limit, ident }, datagram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_was_known() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fe80::1", "2001:db8::2")] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            for ident in [
                Ident::Likely(0x1234),
                Ident::Known { id: 0xFFFF, dont_fragment: false },
                Ident::Known { id: 1, dont_fragment: true },
            ] {
                let net = NetHeader {
                    src,
                    dst,
                    src_port: 49_152,
                    traffic_class: 3,
                    hop_limit: 64,
                    ident,
                };
                let bytes = [&ForwardHeader::of(&net).0[..], b"datagram"].concat();
                let header = RunHeader {
                    length: bytes.len(),
                    segment: bytes.len(),
                    traffic_class: 3,
                    hop_limit: 64,
                    checksum_verified: false,
                };
                assert_eq!(
                    ForwardHeader::read(&header, dst, &bytes),
                    Some((net, &b"datagram"[..]))
                );
            }
        }
        let header = RunHeader {
            length: 23,
            segment: 23,
            traffic_class: 0,
            hop_limit: 0,
            checksum_verified: false,
        };
        assert_eq!(ForwardHeader::read(&header, [10, 0, 0, 2].into(), &[0; 23]), None);
    }
}
