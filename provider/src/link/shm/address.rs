//! Addresses that several processes share.
//!
//! The first process that opens an address is its *owner*, by the socket that has the address's
//! name. It alone reads the UDP socket. A process that opens the address later becomes a *peer*: it
//! is given the UDP socket, to send from, and a ring, into which the owner writes whatever [is
//! for](Addressee) the peer's partition, or for a service that only the peer listens for. When the
//! owner ends, one of the peers gets the name and is the owner from then on; the UDP socket has
//! never been closed meanwhile, and the others become its peers.

use std::{collections::BTreeSet, io, mem, net::IpAddr, os::fd::OwnedFd, sync::Arc};

use roce_transport::{
    cm::ServiceId,
    share::{Addressee, IdPartition},
    time::Instant,
    wire::NetHeader,
};

use super::{
    claim::{ClaimTable, Entry},
    owner::{Role, SharedAddress},
    peer::{Peers, announcement},
    socket::send_with,
};
use crate::link::Datagram;

/// Number of requests that wait for a peer to announce their service.
const MAX_WAITING: usize = 64;

/// The addresses of a device, as far as other processes may share them.
#[derive(Default)]
pub(super) struct SharedAddresses {
    /// Partition of the numbers that this device has, on all its addresses.
    partition: Option<IdPartition>,
    addresses: Vec<SharedAddress>,
    peers: Peers,
    /// Requests for services of peers that have not announced them yet.
    waiting: Vec<(ServiceId, NetHeader, Box<[u8]>)>,
    /// True if another process is, or was, at any of the addresses.
    is_shared: bool,
}

impl SharedAddresses {
    /// None yet, with the same partition.
    pub(super) fn part(&self) -> Self {
        Self { partition: self.partition, ..Self::default() }
    }

    /// Takes over the addresses of a [part](Self::part).
    pub(super) fn absorb(&mut self, part: Self) {
        self.addresses.extend(part.addresses);
        self.is_shared |= part.is_shared;
    }

    pub(super) const fn partition(&self) -> Option<IdPartition> {
        self.partition
    }

    /// Number of datagrams that were for peers.
    pub(super) const fn forwarded(&self) -> u64 {
        self.peers.forwarded()
    }

    /// True if another process reads the UDP socket of this address.
    pub(super) fn is_peer(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|shared| shared.address == address && !shared.is_owner())
    }

    /// Time at which the owner of an address is to be looked for.
    pub(super) fn search_at(&self) -> Option<Instant> {
        let due = |shared: &SharedAddress| {
            if let Role::Searching(due) = shared.role { Some(due) } else { None }
        };
        self.addresses.iter().filter_map(due).min()
    }

    /// Has the owner of an address looked for at this time.
    pub(super) fn search(&mut self, address: IpAddr, due: Instant) {
        let shared = self.addresses.iter_mut().filter(|shared| shared.address == address);
        shared.for_each(|shared| shared.role = Role::Searching(due));
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SharedAddress> {
        self.addresses.iter_mut()
    }

    /// Adds an address of which this process is the owner.
    pub(super) fn add_owned(
        &mut self,
        address: IpAddr,
        interface: u32,
        udp: OwnedFd,
    ) -> io::Result<()> {
        self.add(address, interface, udp, ClaimTable::new()?, Role::Owner)
    }

    /// Adds an address that another process owns.
    pub(super) fn add_granted(
        &mut self,
        address: IpAddr,
        interface: u32,
        udp: OwnedFd,
        claims: &OwnedFd,
        owner: Arc<OwnedFd>,
    ) -> io::Result<()> {
        self.add(address, interface, udp, ClaimTable::join(claims)?, Role::Peer(owner))?;
        self.is_shared = true;
        Ok(())
    }

    fn add(
        &mut self,
        address: IpAddr,
        interface: u32,
        udp: OwnedFd,
        claims: ClaimTable,
        role: Role,
    ) -> io::Result<()> {
        if let Some(partition) = self.partition {
            claims.take(Entry::Partition(partition))?;
        }
        let services = BTreeSet::new();
        self.addresses.push(SharedAddress { address, interface, udp, claims, services, role });
        self.announce(address);
        Ok(())
    }

    /// Chooses a partition that no other process has on any of the addresses; `first` is tried
    /// first. Without addresses that can be shared there is no need for one.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_partition(&mut self, first: u8) -> io::Result<()> {
        if self.addresses.is_empty() {
            return Ok(());
        }
        let partitions = (0..IdPartition::COUNT).filter_map(|step| {
            IdPartition::new((first % IdPartition::COUNT + step) % IdPartition::COUNT + 1)
        });
        for partition in partitions {
            let entry = Entry::Partition(partition);
            let is_taken = |shared: &SharedAddress| shared.claims.take(entry).is_err();
            let Some(taken) = self.addresses.iter().position(is_taken) else {
                self.partition = Some(partition);
                let addresses: Vec<_> =
                    self.addresses.iter().map(|shared| shared.address).collect();
                addresses.into_iter().for_each(|address| self.announce(address));
                return Ok(());
            };
            self.addresses[..taken].iter().for_each(|shared| shared.claims.release(entry));
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Removes an address.
    pub(super) fn forget(&mut self, address: IpAddr) -> Option<SharedAddress> {
        self.peers.forget(address);
        let index = self.addresses.iter().position(|shared| shared.address == address)?;
        Some(self.addresses.swap_remove(index))
    }

    /// Listens for a service.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process does so at this address.
    pub(super) fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        let Some(shared) = self.address(address) else { return Ok(()) };
        shared.claims.take(Entry::Service(service))?;
        shared.services.insert(service);
        self.announce(address);
        Ok(())
    }

    /// True if another process listens for it.
    pub(super) fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.addresses.iter().any(|shared| {
            shared.address == address && shared.claims.is_taken(Entry::Service(service))
        })
    }

    /// Listens for it no more.
    pub(super) fn release(&mut self, service: ServiceId, address: IpAddr) {
        let Some(shared) = self.address(address) else { return };
        if shared.services.remove(&service) {
            shared.claims.release(Entry::Service(service));
            self.announce(address);
        }
    }

    fn address(&mut self, address: IpAddr) -> Option<&mut SharedAddress> {
        self.addresses.iter_mut().find(|shared| shared.address == address)
    }

    /// Announces to the owner of an address, if it is another process, what is for this one.
    pub(super) fn announce(&mut self, address: IpAddr) {
        let Some(partition) = self.partition else { return };
        let Some(shared) = self.address(address) else { return };
        let Role::Peer(owner) = &shared.role else { return };
        if send_with(owner, &announcement(partition, &shared.services), &[]).is_err() {
            // it has ended, or is so busy that it must be asked anew
            shared.role = Role::Searching(Instant::ZERO);
        }
    }

    /// Accepts a peer process, which `wakeup` wakes.
    pub(super) fn accept_peer(
        &mut self,
        address: IpAddr,
        socket: OwnedFd,
        wakeup: OwnedFd,
    ) -> io::Result<()> {
        let shared = self.address(address).filter(|shared| shared.is_owner());
        let sender = shared.ok_or(io::ErrorKind::PermissionDenied)?.grant(&socket, wakeup)?;
        self.is_shared = true;
        self.peers.add(address, socket, sender);
        Ok(())
    }

    /// Reads what peers announce, and forwards the requests that waited for it.
    pub(super) fn read_updates(&mut self) {
        self.peers.read_updates();
        for (service, net, bytes) in mem::take(&mut self.waiting) {
            self.forward_request(service, &Datagram::new(&net, &bytes));
        }
    }

    /// Forwards a datagram to the process that it is for. Returns false if that is this one.
    pub(super) fn forward(&mut self, datagram: &Datagram<'_>) -> bool {
        if !self.is_shared {
            return false;
        }
        let dst = datagram.net.dst;
        match Addressee::of(datagram.bytes) {
            Addressee::Unknown => false,
            Addressee::Partition(partition) if Some(partition) == self.partition => false,
            Addressee::Partition(partition) => {
                if self.peers.has_unannounced() {
                    self.peers.read_updates(); // it may have announced just now which one it has
                }
                self.peers.forward(datagram, |peer| {
                    peer.address == dst && peer.partition == Some(partition)
                })
            }
            Addressee::Service(service) => {
                let is_own = |shared: &SharedAddress| {
                    shared.address == dst && shared.services.contains(&service)
                };
                if self.addresses.iter().any(is_own) {
                    return false;
                }
                self.peers.read_updates(); // one may have begun to listen just now
                self.forward_request(service, datagram)
            }
            Addressee::EveryPartition => {
                self.peers.forward_to_all(datagram);
                false
            }
        }
    }

    /// Forwards a request to the peer that listens for the service. Returns false if there is none.
    fn forward_request(&mut self, service: ServiceId, request: &Datagram<'_>) -> bool {
        let dst = request.net.dst;
        let listens = self
            .peers
            .forward(request, |peer| peer.address == dst && peer.services.contains(&service));
        if listens {
            return true;
        }
        // when the owner has changed, it may take a moment until all peers have announced theirs
        let is_claimed = self.is_claimed(service, dst);
        if is_claimed && self.waiting.len() < MAX_WAITING {
            self.waiting.push((service, *request.net, request.bytes.into()));
        }
        is_claimed
    }

    /// Wakes peers, see [`Peers::flush`].
    pub(super) fn flush(&mut self) -> bool {
        self.peers.flush()
    }
}
