//! Addresses that several processes share.
//!
//! The first process that opens an address is its *owner*, by the socket that has the address's
//! name. It alone reads the UDP socket. A process that opens the address later becomes a *peer*: it
//! is given the UDP socket, to send from, and a ring, into which the owner writes whatever [is
//! for](Addressee) the peer's partition, or for a service that only the peer listens for. What is for
//! a queue pair of the peer's comes to a [member socket](super::members), if there is one. When the
//! owner ends, or is stopped while something arrives, one of the peers is the owner from then on: it
//! has the UDP socket and the one with the name, which have been open all the time, and the others
//! become its peers. What neither the owner nor a peer that has announced itself is to have waits a
//! moment, because the peers of an owner come one by one.

use std::{
    collections::VecDeque,
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use roce_transport::{
    cm::{ConnRecord, ServiceId},
    share::{Addressee, IdPartition, Requests},
    time::Instant,
    wire::NetHeader,
};
use socket2::Socket;

use super::{
    claim::Entry,
    look::Looks,
    owner::{Change, Place, SharedAddress},
    peer::{Peer, Peers, announcement},
    record,
    socket::{self, send_with},
};
use crate::link::{Datagram, DatagramMeta, DatagramRun, Ended};

/// Number of datagrams that wait for a peer to announce itself.
const MAX_WAITING: usize = 256;
/// Time that they wait.
const WAITING_TIME: Duration = Duration::from_millis(500);

/// The addresses of a device, as far as other processes may share them.
#[derive(Default)]
pub(super) struct SharedAddresses {
    /// Partition of the numbers that this device has, on all its addresses.
    partition: Option<IdPartition>,
    pub(super) addresses: Vec<SharedAddress>,
    pub(super) peers: Peers,
    /// Addresses of which this process was the owner, with peers that still get what it has received
    /// for them.
    resigned: Vec<IpAddr>,
    /// Datagrams for peers that have not announced themselves yet, in order, and until when.
    waiting: VecDeque<(Instant, NetHeader, DatagramMeta, Box<[u8]>)>,
    /// Requests that this process has received for one of them.
    requests: Requests,
    /// Time of this round.
    now: Instant,
    /// It was looked in this round whether peers announce anything.
    has_looked: bool,
    /// True if another process is, or was, at any of the addresses.
    is_shared: bool,
    /// Looks for what processes have left that have ended, if any may have.
    looks: Option<Looks>,
    /// Member sockets that are to be read from now on, by address.
    members: Vec<(IpAddr, Socket)>,
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
        self.members.extend(part.members);
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

    /// Addresses that other processes receive for, with the indices of their interfaces.
    pub(super) fn of_others(&self) -> Vec<(IpAddr, u32)> {
        let peers = self.addresses.iter().filter(|shared| !shared.is_owner());
        peers.map(|shared| (shared.address, shared.interface)).collect()
    }

    /// Begins a round of serving. Returns true if a [role](Self::update_roles) may change now.
    pub(super) fn begin_round(&mut self, now: Instant) -> bool {
        (self.now, self.has_looked) = (now, false);
        // all of them count
        self.addresses.iter().fold(false, |due, shared| shared.begin_round(now) | due)
    }

    /// Time at which a [role](Self::update_roles) may change although nothing arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let shared = self.addresses.iter().filter_map(SharedAddress::deadline);
        shared.chain(self.looks_at()).min()
    }

    /// Something has arrived at one of the addresses that another process is to read.
    pub(super) fn note_arrival(&mut self, now: Instant) {
        self.addresses.iter_mut().for_each(|shared| shared.note_arrival(now));
    }

    /// Finds a new owner for each address whose owner has ended or is stopped. Returns what has
    /// become of this process, by address.
    pub(super) fn update_roles(
        &mut self,
        now: Instant,
        place: &mut Place<'_>,
    ) -> Vec<(IpAddr, Change)> {
        let mut changes = Vec::new();
        for shared in &mut self.addresses {
            let was_owner = shared.is_owner();
            changes.extend(shared.update_role(now, place).map(|change| (shared.address, change)));
            if !was_owner && shared.is_owner() {
                self.looks = Some(Looks::begin(now));
                shared.steer();
            }
        }
        for (address, change) in &changes {
            match change {
                Change::Granted(..) => self.enter(place.epoll, *address),
                Change::Resigned => self.resigned.push(*address),
            }
        }
        changes
    }

    /// Disconnects the peers at addresses that are no longer this process's, where nothing `is_left`
    /// for them.
    pub(super) fn disconnect_peers(&mut self, is_left: impl Fn(IpAddr) -> bool) {
        let Self { addresses, peers, resigned, .. } = self;
        let is_owner =
            |address| addresses.iter().any(|shared| shared.address == address && shared.is_owner());
        let done = resigned.extract_if(.., |address| is_owner(*address) || !is_left(*address));
        done.for_each(|address| peers.forget(address));
    }

    /// True if there are such peers.
    pub(super) const fn has_former_peers(&self) -> bool {
        !self.resigned.is_empty()
    }

    /// Has the owner of an address looked for at this time.
    pub(super) fn search(&mut self, address: IpAddr, due: Instant) {
        let shared = self.addresses.iter_mut().filter(|shared| shared.address == address);
        shared.for_each(|shared| shared.search(due));
    }

    /// True if this address may be shared.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|shared| shared.address == address)
    }

    /// Adds an address.
    pub(super) fn add(&mut self, epoll: &OwnedFd, shared: SharedAddress) -> io::Result<()> {
        if let Some(partition) = self.partition {
            shared.claims.take(Entry::Partition(partition))?;
            record::clear(shared.claims.file(), partition);
        }
        self.is_shared |= !shared.is_owner();
        let address = shared.address;
        self.addresses.push(shared);
        self.enter(epoll, address);
        Ok(())
    }

    /// Has its part of an address that it has been granted: a member socket, if there is one, and
    /// what the owner is told to be for this process.
    fn enter(&mut self, epoll: &OwnedFd, address: IpAddr) {
        let Some(partition) = self.partition else { return };
        let granted = self.address(address).filter(|shared| shared.owner().is_some());
        let member = granted.and_then(|shared| shared.take_member(epoll, partition));
        self.members.extend(member.map(|socket| (address, socket)));
        self.announce(address);
    }

    /// A member socket that is to be read from now on, and its address.
    pub(super) fn poll_member(&mut self) -> Option<(IpAddr, Socket)> {
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
            let entry = Entry::Partition(partition);
            let is_taken = |shared: &SharedAddress| {
                shared.is_left(partition) || shared.claims.take(entry).is_err()
            };
            let Some(taken) = self.addresses.iter().position(is_taken) else {
                self.partition = Some(partition);
                let addresses: Vec<_> =
                    self.addresses.iter().map(|shared| shared.address).collect();
                addresses.into_iter().for_each(|address| self.enter(epoll, address));
                return Ok(());
            };
            self.addresses[..taken].iter().for_each(|shared| shared.claims.release(entry));
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Takes a partition that this device has elsewhere, where another process receives.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has it at one of the addresses.
    pub(super) fn adopt_partition(
        &mut self,
        epoll: &OwnedFd,
        partition: IdPartition,
    ) -> io::Result<()> {
        for shared in &self.addresses {
            shared.claims.take(Entry::Partition(partition))?;
        }
        self.partition = Some(partition);
        let addresses: Vec<_> = self.addresses.iter().map(|shared| shared.address).collect();
        addresses.into_iter().for_each(|address| self.enter(epoll, address));
        Ok(())
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
        if shared.services.insert(service) {
            self.announce(address);
        }
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

    /// Writes the record of an own connection to where the others at its address find it.
    pub(super) fn keep_record(&mut self, record: &ConnRecord) {
        let Some(partition) = self.partition else { return };
        let Some(shared) = self.address(record.local) else { return };
        // without room for it, the peer does not hear of the end
        let _ = shared.records.keep(shared.claims.file(), partition, record);
    }

    /// Erases such a record.
    pub(super) fn erase_record(&mut self, record: &ConnRecord) {
        let Some(partition) = self.partition else { return };
        let Some(shared) = self.address(record.local) else { return };
        let _ = shared.records.erase(shared.claims.file(), partition, record.local_id);
    }

    /// Time of the next [look](Self::take_left).
    pub(super) fn looks_at(&self) -> Option<Instant> {
        self.looks.as_ref().map(|looks| looks.due)
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
            let left = shared.take_left(self.partition).into_iter();
            ended.extend(left.map(|(partition, records)| Ended::Here {
                address,
                partition,
                records,
            }));
        }
        ended
    }

    /// What a process has left is seen to.
    pub(super) fn settle(&mut self, address: IpAddr, partition: IdPartition) {
        if let Some(shared) = self.address(address) {
            shared.settle(partition);
        }
    }

    /// Index of an address's interface.
    pub(super) fn interface(&self, address: IpAddr) -> u32 {
        let shared = self.addresses.iter().find(|shared| shared.address == address);
        shared.map_or(0, |shared| shared.interface)
    }

    /// The claim table of an address, for those who send to it.
    pub(super) fn claims(&self, address: IpAddr) -> Option<BorrowedFd<'_>> {
        let shared = self.addresses.iter().find(|shared| shared.address == address)?;
        Some(shared.claims.as_fd())
    }

    pub(super) fn address(&mut self, address: IpAddr) -> Option<&mut SharedAddress> {
        self.addresses.iter_mut().find(|shared| shared.address == address)
    }

    /// Adds a peer.
    pub(super) fn add_peer(&mut self, peer: Peer) {
        self.is_shared = true;
        self.peers.add(peer);
    }

    /// Announces to the owner of an address what is for this process.
    fn announce(&mut self, address: IpAddr) {
        let (Some(partition), now) = (self.partition, self.now) else { return };
        let Some(shared) = self.address(address) else { return };
        let Some(owner) = shared.owner() else { return };
        if send_with(owner, &announcement(partition, &shared.services), &[]).is_err() {
            // it has ended, or is so busy that it must be asked anew
            shared.search(now);
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
        self.add_peer(Peer::new(address, socket, sender));
        Ok(())
    }

    /// Reads what peers announce, and forwards what has waited for it.
    pub(super) fn read_updates(&mut self) {
        let is_news = self.peers.read_updates();
        if self.peers.take_ended() {
            self.looks = Some(Looks::begin(self.now));
        }
        if !is_news {
            return;
        }
        self.addresses.iter_mut().for_each(SharedAddress::steer);
        for (until, net, meta, bytes) in mem::take(&mut self.waiting) {
            let datagram = Datagram { net: &net, bytes: &bytes, meta };
            if self.now < until && !self.forward_to_peer(&datagram) {
                self.waiting.push_back((until, net, meta, bytes));
            }
        }
    }

    /// True if a datagram that has come by a member socket is not for this process, but to be passed
    /// to the owner.
    pub(super) fn is_strange(&self, datagram: &Datagram<'_>) -> bool {
        match Addressee::of(datagram.bytes) {
            Addressee::Partition(partition) => Some(partition) != self.partition,
            Addressee::Service(_) => true,
            Addressee::Unknown => false,
        }
    }

    /// Forwards the datagrams of a run that are for others, and hands over the rest.
    pub(super) fn forward_run(
        &mut self,
        epoll: &OwnedFd,
        run: &DatagramRun<'_>,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
        if !self.is_shared {
            return sink(run);
        }
        run.for_each(|datagram| {
            if !self.forward(epoll, datagram) {
                sink(&(*datagram).into());
            }
        });
    }

    /// Forwards a datagram to the process that it is for. Returns false if that is this one.
    pub(super) fn forward(&mut self, epoll: &OwnedFd, datagram: &Datagram<'_>) -> bool {
        if !self.is_shared {
            return false;
        }
        let dst = datagram.net.dst;
        let entry = match self.requests.addressee(datagram.net.src, datagram.bytes) {
            Addressee::Unknown => return false,
            Addressee::Partition(partition) if Some(partition) == self.partition => return false,
            Addressee::Partition(partition) => {
                if self.peers.has_unannounced() {
                    self.look(epoll); // it may have announced just now which one it has
                }
                Entry::Partition(partition)
            }
            Addressee::Service(service) => {
                let is_own = |shared: &SharedAddress| {
                    shared.address == dst && shared.services.contains(&service)
                };
                if self.addresses.iter().any(is_own) {
                    return false;
                }
                self.look(epoll); // one may have begun to listen just now
                Entry::Service(service)
            }
        };
        self.forward_to_peer(datagram) || self.keep(entry, datagram)
    }

    /// Reads what peers announce, if there is any news, once in a round: a host that sends whatever it
    /// likes costs no more. What is announced later in the round [waits](Self::keep).
    fn look(&mut self, epoll: &OwnedFd) {
        if !mem::replace(&mut self.has_looked, true) && socket::news(epoll).0 {
            self.read_updates();
        }
    }

    /// Forwards a datagram to the peer that it is for. Returns false if there is none.
    fn forward_to_peer(&mut self, datagram: &Datagram<'_>) -> bool {
        let dst = datagram.net.dst;
        match self.requests.addressee(datagram.net.src, datagram.bytes) {
            Addressee::Partition(partition) => self
                .peers
                .forward(datagram, |peer| peer.address == dst && peer.partition == Some(partition)),
            Addressee::Service(service) => self
                .peers
                .forward(datagram, |peer| peer.address == dst && peer.services.contains(&service)),
            Addressee::Unknown => false,
        }
    }

    /// Keeps a datagram for a process that is no peer yet. Returns false if there is none.
    fn keep(&mut self, entry: Entry, datagram: &Datagram<'_>) -> bool {
        let now = self.now;
        let shared = self.addresses.iter().find(|shared| shared.address == datagram.net.dst);
        let Some(shared) = shared.filter(|shared| shared.claims.is_taken(entry)) else {
            return false;
        };
        if !shared.is_owner() {
            // what has come late from an owner that is none any more; a request is not to be refused
            // for it
            return matches!(entry, Entry::Service(_));
        }
        while self.waiting.front().is_some_and(|(until, ..)| *until <= now) {
            self.waiting.pop_front();
        }
        if self.waiting.len() < MAX_WAITING {
            let until = now.plus(WAITING_TIME);
            let Datagram { net, bytes, meta } = *datagram;
            self.waiting.push_back((until, *net, meta, bytes.into()));
        }
        true
    }

    /// True if datagrams wait for peers that have not announced themselves yet.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.back().is_some_and(|(until, ..)| self.now < *until)
    }

    /// Wakes peers, see [`Peers::flush`].
    pub(super) fn flush(&mut self) -> bool {
        self.peers.flush()
    }

    #[cfg(test)]
    pub(super) fn forget_peers(&mut self, address: IpAddr) {
        self.peers.forget(address);
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
