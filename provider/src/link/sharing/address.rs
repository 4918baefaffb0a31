//! Addresses that several processes share.
//!
//! The first process that opens an address is its *owner*, by the socket that has the address's
//! name. It alone reads the UDP socket. A process that opens the address later becomes a *peer*. It
//! is granted the UDP socket, to send from, the named socket, and the [claims](super::claim). The
//! owner forwards to it all that [is for](Addressee) its partition, or for a service that it
//! listens for. Packets for a queue pair of the peer's come to a [member socket](super::members),
//! if there is one. When the owner ends, or is stopped while packets arrive, one of the peers
//! becomes the owner. It has all that the owner had, and the others become its peers.

use std::{io, net::IpAddr, os::fd::OwnedFd};

use roce_transport::{
    cm::ServiceId,
    share::{Addressee, IdPartition, Requests},
    time::Instant,
};
use socket2::Socket;

use super::{
    claim::Entry,
    look::Looks,
    owner::{Change, Forwarding, SharedAddress},
    record,
};
use crate::link::{Datagram, Ended};

/// The addresses of a device, as far as other processes may share them.
#[derive(Default)]
pub(in crate::link) struct SharedAddresses {
    /// Partition of the numbers that this device has, on all its addresses.
    partition: Option<IdPartition>,
    addresses: Vec<SharedAddress>,
    /// Requests that this process has received for one of them.
    requests: Requests,
    /// True if another process is, or was, at any of the addresses.
    is_shared: bool,
    /// Looks for what processes have left that have ended, if any may have.
    looks: Option<Looks>,
    /// Member sockets that are to be read from now on, by address.
    members: Vec<(IpAddr, Socket)>,
}

/// The process that a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addressed {
    Here,
    /// The one with this partition, if there is one.
    Other(IdPartition),
    /// One that cannot be told just now.
    Lost,
}

impl SharedAddresses {
    pub(in crate::link) const fn partition(&self) -> Option<IdPartition> {
        self.partition
    }

    /// True if another process is, or was, at any of the addresses.
    pub(in crate::link) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn at(&self, address: IpAddr) -> Option<&SharedAddress> {
        self.addresses.iter().find(|shared| shared.address == address)
    }

    pub(super) fn at_mut(&mut self, address: IpAddr) -> Option<&mut SharedAddress> {
        self.addresses.iter_mut().find(|shared| shared.address == address)
    }

    /// True if another process reads the UDP socket of this address.
    pub(in crate::link) fn is_peer(&self, address: IpAddr) -> bool {
        self.at(address).is_some_and(|shared| !shared.is_owner())
    }

    /// True if this address may be shared.
    pub(in crate::link) fn contains(&self, address: IpAddr) -> bool {
        self.at(address).is_some()
    }

    /// Index of an address's interface.
    pub(super) fn interface(&self, address: IpAddr) -> u32 {
        self.at(address).map_or(0, |shared| shared.interface)
    }

    /// The addresses, with the indices of their interfaces.
    pub(super) fn all(&self) -> Vec<(IpAddr, u32)> {
        self.addresses.iter().map(|shared| (shared.address, shared.interface)).collect()
    }

    // Who is the owner.

    /// Begins a round of serving. Returns true if a [role](Self::update_roles) may change now.
    pub(super) fn begin_round(&self, now: Instant) -> bool {
        // all of them count
        self.addresses.iter().fold(false, |due, shared| shared.begin_round(now) | due)
    }

    /// Time at which a [role](Self::update_roles) may change although nothing arrives, or at which
    /// it is looked for what processes have left.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let shared = self.addresses.iter().filter_map(SharedAddress::deadline);
        shared.chain(self.looks.as_ref().map(|looks| looks.due)).min()
    }

    /// Something has arrived at one of the addresses that another process is to read.
    pub(super) fn record_arrival(&mut self, now: Instant) {
        self.addresses.iter_mut().for_each(|shared| shared.record_arrival(now));
    }

    /// Finds a new owner for each address whose owner has ended or is stopped. Returns what has
    /// become of this process, by address.
    pub(super) fn update_roles(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
        forwarding: impl Fn(IpAddr, u64) -> Forwarding,
    ) -> Vec<(IpAddr, Change)> {
        let Self { addresses, looks, .. } = self;
        let mut changes = Vec::new();
        for shared in addresses {
            let address = shared.address;
            let change = shared.update_role(now, epoll, |term| forwarding(address, term));
            if matches!(change, Some(Change::Succeeded)) {
                *looks = Some(Looks::begin(now));
                shared.steer();
            }
            changes.extend(change.map(|change| (address, change)));
        }
        changes
    }

    // Addresses and their claims.

    /// Adds an address.
    pub(super) fn add(&mut self, epoll: &OwnedFd, shared: SharedAddress) -> io::Result<()> {
        shared.watch(epoll)?;
        if let Some(partition) = self.partition {
            shared.common.claims.take(Entry::Partition(partition))?;
            record::clear(shared.common.claims.file(), partition);
        }
        self.is_shared |= !shared.is_owner();
        self.addresses.push(shared);
        self.enter(epoll);
        Ok(())
    }

    /// Takes a member socket at each address where another process receives, if there is one.
    fn enter(&mut self, epoll: &OwnedFd) {
        let Some(partition) = self.partition else { return };
        let enter =
            |shared: &mut SharedAddress| Some((shared.address, shared.enter(epoll, partition)?));
        let members = self.addresses.iter_mut().filter_map(enter);
        self.members.extend(members);
    }

    /// A member socket that is to be read from now on, and its address.
    pub(in crate::link) fn poll_member(&mut self) -> Option<(IpAddr, Socket)> {
        self.members.pop()
    }

    /// Chooses a partition that no other process has on any of the addresses; `first` is tried
    /// first. Without addresses that can be shared there is no need for one.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_partition(&mut self, epoll: &OwnedFd, first: u8) -> io::Result<()> {
        if self.addresses.is_empty() {
            return Ok(());
        }
        let partitions = (0..IdPartition::COUNT).filter_map(|step| {
            IdPartition::new((first % IdPartition::COUNT + step) % IdPartition::COUNT + 1)
        });
        for partition in partitions {
            let is_left = |shared: &SharedAddress| {
                record::used_partitions(shared.common.claims.file()).contains(&partition)
            };
            if !self.addresses.iter().any(is_left) && self.take_partition(epoll, partition).is_ok()
            {
                return Ok(());
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Takes a partition.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has it at one of the addresses.
    pub(super) fn take_partition(
        &mut self,
        epoll: &OwnedFd,
        partition: IdPartition,
    ) -> io::Result<()> {
        let entry = Entry::Partition(partition);
        for (index, shared) in self.addresses.iter().enumerate() {
            if let Err(error) = shared.common.claims.take(entry) {
                self.addresses[..index]
                    .iter()
                    .for_each(|shared| shared.common.claims.release(entry));
                return Err(error);
            }
        }
        self.partition = Some(partition);
        self.enter(epoll);
        Ok(())
    }

    /// Removes an address.
    pub(super) fn forget(&mut self, address: IpAddr) -> Option<SharedAddress> {
        let index = self.addresses.iter().position(|shared| shared.address == address)?;
        Some(self.addresses.swap_remove(index))
    }

    /// Listens for a service.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process does so at this address.
    pub(in crate::link) fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        self.at_mut(address).map_or(Ok(()), |shared| shared.claim(service))
    }

    /// True if another process listens for it.
    pub(in crate::link) fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.at(address)
            .is_some_and(|shared| shared.common.claims.is_taken(Entry::Service(service)))
    }

    /// Listens for it no more.
    pub(in crate::link) fn release(&mut self, service: ServiceId, address: IpAddr) {
        self.at_mut(address).into_iter().for_each(|shared| shared.release(service));
    }

    // Other processes.

    /// Grants an address to a process that has come.
    pub(super) fn grant(&mut self, address: IpAddr, socket: &OwnedFd) -> io::Result<()> {
        let shared = self.at_mut(address).ok_or(io::ErrorKind::PermissionDenied)?;
        shared.grant(socket)?;
        self.is_shared = true;
        Ok(())
    }

    /// A peer has come, or gone: the kernel is told whose member sockets are read.
    pub(super) fn steer(&mut self) {
        self.addresses.iter_mut().for_each(SharedAddress::steer);
    }

    /// A process has ended, it seems.
    pub(super) fn record_end(&mut self, now: Instant) {
        self.looks = Some(Looks::begin(now));
    }

    /// Looks, if that is due, for what processes have left at addresses of which this one is the
    /// owner.
    pub(super) fn take_left(&mut self, now: Instant) -> Vec<Ended> {
        let Some(looks) = self.looks.take_if(|looks| looks.due <= now) else { return Vec::new() };
        self.looks = looks.next(now);
        let mut ended = Vec::new();
        for shared in self.addresses.iter_mut().filter(|shared| shared.is_owner()) {
            shared.steer(); // no more to one that has ended
            let address = shared.address;
            let left = shared.take_left().into_iter();
            ended.extend(left.map(|(partition, records)| Ended::Here {
                address,
                partition,
                records,
            }));
        }
        ended
    }

    /// What a process has left is seen to.
    pub(in crate::link) fn settle(&mut self, address: IpAddr, partition: IdPartition) {
        self.at_mut(address).into_iter().for_each(|shared| shared.settle(partition));
    }

    /// True if another process has a partition.
    pub(super) fn is_taken(&self, address: IpAddr, partition: IdPartition) -> bool {
        let entry = Entry::Partition(partition);
        self.at(address).is_some_and(|shared| shared.common.claims.is_taken(entry))
    }

    /// The process that a datagram is for that has come by a UDP socket of an address.
    pub(super) fn addressed(&mut self, datagram: &Datagram<'_>) -> Addressed {
        let addressee = self.requests.addressee(datagram.net.src, datagram.bytes);
        let Some(shared) = self.at(datagram.net.dst) else { return Addressed::Here };
        match addressee {
            Addressee::Partition(partition) if Some(partition) != self.partition => {
                Addressed::Other(partition)
            }
            Addressee::Service(service) if !shared.serves(service) => {
                match shared.listener(service) {
                    Ok(partition) => Addressed::Other(partition),
                    Err(true) => Addressed::Lost,
                    Err(false) => Addressed::Here,
                }
            }
            _ => Addressed::Here,
        }
    }
}
