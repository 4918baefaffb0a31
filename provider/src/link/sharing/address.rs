//! Addresses shared by several processes.
//!
//! The first process that opens an address is its *owner*, by the socket with the address's name.
//! Only the owner reads the UDP socket. A later process becomes a *peer*. A peer gets the UDP
//! socket (to send from), the named socket, and the [claims](super::claim). The owner forwards
//! datagrams [for](Addressee) a peer's partition or service. Packets for a peer's queue pair reach
//! its [member socket](super::members), if any. When the owner ends, or is stopped while packets
//! arrive, a peer becomes the owner.

use std::{io, net::IpAddr};

use roce_transport::{
    cm::ServiceId,
    share::{Addressee, IdPartition},
    time::Instant,
};
use socket2::Socket;

use super::{
    Acquired, Locality, Sharing,
    claim::Entry,
    ends::LivenessProbe,
    names::of_process,
    owner::{Addressed, SharedAddress},
    record,
};
use crate::{
    cancel::Uncancelled,
    link::{Datagram, DatagramRun, Ended, RunSink},
};

impl Sharing {
    fn at(&self, address: IpAddr) -> Option<&SharedAddress> {
        self.addresses.iter().find(|shared| shared.address == address)
    }

    pub(super) fn at_mut(&mut self, address: IpAddr) -> Option<&mut SharedAddress> {
        self.addresses.iter_mut().find(|shared| shared.address == address)
    }

    /// True if another process reads the address's UDP socket.
    pub(in crate::link) fn is_peer(&self, address: IpAddr) -> bool {
        self.at(address).is_some_and(|shared| !shared.is_owner())
    }

    pub(in crate::link) fn contains(&self, address: IpAddr) -> bool {
        self.at(address).is_some()
    }

    pub(super) fn interface(&self, address: IpAddr) -> u32 {
        self.at(address).map_or(0, |shared| shared.interface)
    }

    /// Errors: [`io::ErrorKind::AddrInUse`] if another process has this partition there.
    pub(in crate::link) fn add(&mut self, acquired: Acquired) -> io::Result<()> {
        let Acquired { address, interface, name, shared } = acquired;
        let can_be_found = name.is_some() || shared.is_some();
        if let Some(name) = name {
            self.listeners.listen(&self.epoll, address, name, false)?;
        }
        if let Some(shared) = shared
            && let Err(error) = self.add_shared(shared)
        {
            self.forget(address);
            return Err(error);
        }
        let has_all = self.locality == Locality::SharedMemory;
        if can_be_found && (has_all || self.partition.is_some()) {
            self.listen_directly(address, interface);
        }
        self.look();
        Ok(())
    }

    fn add_shared(&mut self, shared: SharedAddress) -> io::Result<()> {
        shared.watch(&self.epoll)?;
        if let Some(partition) = self.partition {
            shared.common.claims.take(Entry::Partition(partition))?;
            record::clear(&shared.common.claims.file, partition);
        }
        self.is_shared |= !shared.is_owner();
        self.addresses.push(shared);
        self.enter();
        Ok(())
    }

    /// Takes a member socket, if any, at each address where another process receives.
    fn enter(&mut self) {
        let Self { partition: Some(partition), epoll, addresses, members, .. } = self else {
            return;
        };
        for shared in addresses {
            members.extend(shared.enter(epoll, *partition).map(|socket| (shared.address, socket)));
        }
    }

    /// Next member socket to read, and its address.
    pub(in crate::link) fn poll_member(&mut self) -> Option<(IpAddr, Socket)> {
        self.members.pop()
    }

    /// Takes a partition that is free on all addresses, searching from `first`. `None`: no address
    /// can be shared. Errors: [`io::ErrorKind::AddrInUse`] if no partition is free.
    pub(in crate::link) fn choose_partition(
        &mut self,
        first: u8,
    ) -> io::Result<Option<IdPartition>> {
        if self.addresses.is_empty() {
            return Ok(None);
        }
        let steps = (0..IdPartition::COUNT).map(|step| first % IdPartition::COUNT + step);
        for partition in steps.filter_map(|it| IdPartition::new(it % IdPartition::COUNT + 1)) {
            let mut tables = self.addresses.iter().map(|shared| &shared.common.claims.file);
            if tables.all(|table| !record::is_used(table, partition))
                && self.adopt_partition(partition, [].into_iter()).is_ok()
            {
                return Ok(self.partition);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Takes the partition that this device has at the `served` addresses, where the service
    /// receives, and listens for senders there too. Errors: [`io::ErrorKind::AddrInUse`] if another
    /// process has the partition at one of the other addresses.
    pub(in crate::link) fn adopt_partition(
        &mut self,
        partition: IdPartition,
        served: impl Iterator<Item = (IpAddr, u32)>,
    ) -> io::Result<()> {
        let entry = Entry::Partition(partition);
        for (index, shared) in self.addresses.iter().enumerate() {
            if let Err(error) = shared.common.claims.take(entry) {
                let before = &self.addresses[..index];
                before.iter().for_each(|shared| shared.common.claims.release(entry));
                return Err(error);
            }
        }
        self.partition = Some(partition);
        self.enter();
        let own: Vec<_> = self.addresses.iter().map(|it| (it.address, it.interface)).collect();
        let all = own.into_iter().chain(served);
        all.for_each(|(address, interface)| self.listen_directly(address, interface));
        Ok(())
    }

    /// Listens for senders to this process. Without the name, packets take the network stack.
    pub(in crate::link) fn listen_directly(&mut self, address: IpAddr, interface: u32) {
        let name = of_process(address, interface, self.partition);
        self.listeners.listen_directly(&self.epoll, address, &name);
    }

    pub(in crate::link) fn forget(&mut self, address: IpAddr) {
        self.listeners.leave(&self.epoll, address, true);
        self.paths.forget(address);
        self.inbox.forget(address);
        let epoll = &self.epoll;
        let gone = self.addresses.extract_if(.., |shared| shared.address == address);
        gone.for_each(|shared| shared.leave(epoll));
    }

    /// Replaces owners that have ended or are stopped.
    pub(super) fn update_roles(&mut self, now: Instant) {
        let _uncancelled = Uncancelled::begin();
        let Self { inbox, addresses, epoll, listeners, paths, ends, .. } = self;
        for shared in addresses {
            let address = shared.address;
            if !shared.update_role(now, epoll, inbox) {
                continue;
            }
            if shared.is_owner() {
                ends.left = Some(LivenessProbe::begin(now));
                shared.steer();
                let _ = listeners.listen(epoll, address, shared.common.name.clone(), false);
            } else {
                listeners.leave(epoll, address, false);
                paths.resign(address);
                let _ = shared.watch(epoll);
            }
        }
    }

    /// Errors: [`io::ErrorKind::AddrInUse`] if another process has the service at this address.
    pub(in crate::link) fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        self.at_mut(address).map_or(Ok(()), |shared| shared.claim(service))
    }

    pub(in crate::link) fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.at(address)
            .is_some_and(|shared| shared.common.claims.is_taken(Entry::Service(service)))
    }

    pub(in crate::link) fn release(&mut self, service: ServiceId, address: IpAddr) {
        self.at_mut(address).into_iter().for_each(|shared| shared.release(service));
    }

    /// Collects partitions left at addresses owned here, if due.
    pub(super) fn take_left(&mut self, now: Instant) {
        let Some(probe) = self.ends.left.take_if(|probe| probe.due <= now) else { return };
        self.ends.left = probe.next(now);
        for shared in self.addresses.iter_mut().filter(|shared| shared.is_owner()) {
            shared.steer(); // not to an ended process
            let address = shared.address;
            let left = shared.take_left().into_iter();
            let left = left.map(|(partition, records)| Ended::Here { address, partition, records });
            self.ended.extend(left);
        }
    }

    /// Releases a left partition: its peers know of the process's end.
    pub(in crate::link) fn settle(&mut self, address: IpAddr, partition: IdPartition) {
        self.at_mut(address).into_iter().for_each(|shared| shared.settle(partition));
    }

    /// Process that a datagram from the UDP socket is for.
    fn addressed(&mut self, datagram: &Datagram<'_>) -> Addressed {
        let addressee = self.requests.addressee(datagram.net.src, datagram.bytes);
        let Some(shared) = self.at(datagram.net.dst) else { return Addressed::Here };
        match addressee {
            Addressee::Partition(partition) if Some(partition) != self.partition => {
                Addressed::Other(partition)
            }
            Addressee::Service(service) => shared.listener(service),
            Addressee::Partition(_) | Addressee::Unknown => Addressed::Here,
        }
    }

    /// Forwards a run's datagrams for other processes and hands over the rest.
    pub(in crate::link) fn forward_run(
        &mut self,
        now: Instant,
        run: &DatagramRun<'_>,
        sink: &mut RunSink<'_>,
    ) {
        let address = run.net.dst;
        run.for_each(|datagram| {
            let run = DatagramRun::from(*datagram);
            let is_others = match self.addressed(datagram) {
                Addressed::Here => false,
                Addressed::Lost => true,
                Addressed::Other(partition) => {
                    let to = (self.interface(address), partition);
                    let Self { addresses, paths, epoll, .. } = &mut *self;
                    let shared = addresses.iter().find(|shared| shared.address == address);
                    let entry = Entry::Partition(partition);
                    let is_there = || shared.is_some_and(|it| it.common.claims.is_taken(entry));
                    paths.forward(now, epoll, to, &run, is_there)
                }
            };
            if !is_others {
                sink(&run);
            }
        });
        self.paths.wake_forwards(now, address);
    }
}
