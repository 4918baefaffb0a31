//! A process at a shared address, and how a process becomes the owner.

use std::{
    collections::BTreeSet,
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::{
    cm::{ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};
use socket2::Socket;
use tracing::{debug, info};

use super::{
    claim::{ClaimTable, Entry},
    hello::Hello,
    inbox::Inbox,
    members::{self, MakeSocket, MemberPlace},
    names::{connect, of_address},
    reaper,
    record::{self, OwnRecords},
    shared_state::{SILENCE, SharedState},
};
use crate::{
    link::{
        descriptors::{poll_with, send_with},
        ensure,
        epoll::{Readable, unwatch, watch},
        name::Name,
    },
    readiness::is_readable,
};

/// Interval of attempts to reach the owner while an address changes hands.
pub(super) const HANDOVER: Duration = Duration::from_millis(2);

/// Resources that all processes at an address share.
pub(super) struct Common {
    pub(super) udp: OwnedFd,
    /// Socket with the address's name. Only the owner accepts.
    pub(super) name: Arc<Name>,
    pub(super) claims: ClaimTable,
    pub(super) state: SharedState,
    /// Queue of member sockets.
    members: Option<OwnedFd>,
}

pub(super) struct SharedAddress {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    pub(super) common: Common,
    own: Option<IdPartition>,
    make_socket: MakeSocket,
    member: Option<(MemberPlace, OwnedFd)>,
    /// Last term seen by this process.
    pub(super) term: u64,
    services: Vec<ServiceId>,
    records: OwnRecords,
    /// Partitions of ended processes whose peers are not notified yet.
    unsettled: BTreeSet<IdPartition>,
    role: Role,
    /// Connection to the reaper, until this process leaves the address.
    _reaper: Option<OwnedFd>,
}

enum Role {
    Owner,
    Peer {
        /// Set on an arrival for the owner. An owner still silent at this time is stopped.
        check_at: Option<Instant>,
        owner: Owner,
    },
}

enum Owner {
    /// Forwards datagrams for this process.
    Connected,
    /// Asked to forward, until this time.
    Requested(OwnedFd, Instant),
    /// To be asked at this time.
    Backoff(Instant),
}

/// Process that a datagram from the UDP socket is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addressed {
    Here,
    /// The process with this partition, if any.
    Other(IdPartition),
    /// A process whose partition is not known yet.
    Lost,
}

impl Common {
    pub(super) fn new(
        udp: OwnedFd,
        name: Arc<Name>,
        claims: ClaimTable,
        members: Option<OwnedFd>,
    ) -> io::Result<Self> {
        claims.share_name()?;
        let state = SharedState::new(&claims.file)?;
        Ok(Self { udp, name, claims, state, members })
    }

    /// `None`: no grant has arrived yet.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Self>> {
        let Some((_, mut descriptors)) = poll_with(socket, &mut [0])? else { return Ok(None) };
        let members = (descriptors.len() > 5).then(|| descriptors.pop()).flatten();
        let [udp, name, table, low, high] =
            descriptors.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let claims = ClaimTable::join(&[table, low, high])?;
        let this = Self::new(udp, Arc::new(Name::join(name)), claims, members)?;
        ensure(!this.name.has_ended(), io::ErrorKind::ConnectionRefused)?; // with the last process
        Ok(Some(this))
    }
}

impl SharedAddress {
    /// The process that made the claims begins the first term.
    pub(super) fn new(
        (address, interface): (IpAddr, u32),
        common: Common,
        make_socket: MakeSocket,
    ) -> Self {
        let first = common.state.begin_after(0);
        let peer = Role::Peer { check_at: None, owner: Owner::Backoff(Instant::ZERO) };
        Self {
            address,
            interface,
            _reaper: reaper::notify(address, &common.claims),
            term: first.unwrap_or_else(|| common.state.current()),
            common,
            own: None,
            make_socket,
            member: None,
            services: Vec::new(),
            records: OwnRecords::default(),
            unsettled: BTreeSet::new(),
            role: if first.is_some() { Role::Owner } else { peer },
        }
    }

    pub(super) const fn is_owner(&self) -> bool {
        matches!(self.role, Role::Owner)
    }

    pub(super) fn watch(&self, epoll: &OwnedFd) -> io::Result<()> {
        if self.is_owner() {
            return watch(epoll, &self.common.udp, Readable::Datagrams);
        }
        watch(epoll, &self.common.udp, Readable::OtherProcess)?;
        watch(epoll, &self.common.name, Readable::OtherProcess)
    }

    /// Time at which the [role](Self::update_role) may change without an arrival.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Role::Peer { check_at, owner } = &self.role else { return None };
        let owner = match owner {
            Owner::Connected => None,
            Owner::Requested(_, due) | Owner::Backoff(due) => Some(*due),
        };
        owner.into_iter().chain(*check_at).min()
    }

    /// Counts a round as owner. True if the role may change now.
    pub(super) fn begin_round(&self, now: Instant) -> bool {
        if self.is_owner() {
            self.common.state.count_round();
        }
        self.common.state.current() != self.term || self.deadline().is_some_and(|due| due <= now)
    }

    /// Records an arrival that the owner should read.
    pub(super) fn record_arrival(&mut self, now: Instant) {
        if let Role::Peer { check_at: check_at @ None, .. } = &mut self.role {
            *check_at = Some(now.plus(SILENCE));
            self.common.state.watch(now);
        }
    }

    pub(super) fn grant(&mut self, socket: &OwnedFd) -> io::Result<()> {
        self.common.name.share();
        if self.common.state.begin_members() {
            // without member sockets, everything is forwarded
            let members = members::make(&self.common.udp, &self.make_socket);
            self.common.members = members
                .inspect_err(|error| debug!(address = %self.address, %error, "no member sockets"))
                .ok();
        }
        let members = self.common.members.as_ref().map(AsFd::as_fd);
        let own = [self.common.udp.as_fd(), self.common.name.as_fd()].into_iter();
        let descriptors: Vec<_> = own.chain(self.common.claims.files()).chain(members).collect();
        send_with(socket, &[0], &descriptors)
    }

    /// Errors: [`io::ErrorKind::AddrInUse`] if another process listens for the service.
    pub(super) fn claim(&mut self, service: ServiceId) -> io::Result<()> {
        let Some(own) = self.own else { return Ok(()) };
        self.common.claims.take(Entry::Service(service))?;
        if self.services.contains(&service) {
            return Ok(());
        }
        self.services.push(service);
        let set = self.common.state.set_services(own, &self.services);
        if set.is_err() {
            self.release(service);
        }
        set
    }

    pub(super) fn release(&mut self, service: ServiceId) {
        let place = self.services.iter().position(|other| *other == service);
        let (Some(own), Some(place)) = (self.own, place) else { return };
        self.services.swap_remove(place);
        let _ = self.common.state.set_services(own, &self.services);
        self.common.claims.release(Entry::Service(service));
    }

    /// The process that listens for a service; without a listener, this one.
    pub(super) fn listener(&self, service: ServiceId) -> Addressed {
        if self.services.contains(&service) || !self.common.claims.is_taken(Entry::Service(service))
        {
            return Addressed::Here;
        }
        let mut found = self.common.state.listeners(service);
        let found = found.find(|other| self.common.claims.is_taken(Entry::Partition(*other)));
        found.map_or(Addressed::Lost, Addressed::Other)
    }

    /// Sets the partition. A peer also takes a member socket.
    pub(super) fn enter(&mut self, epoll: &OwnedFd, own: IdPartition) -> Option<Socket> {
        self.own = Some(own);
        // replaces the services of the partition's former process
        let _ = self.common.state.set_services(own, &self.services);
        if self.is_owner() || self.member.is_some() {
            return None;
        }
        let members = self.common.members.as_ref()?;
        let is_free = |place: &MemberPlace| self.common.claims.take(Entry::Member(*place)).is_ok();
        let place = MemberPlace::all().find(is_free)?;
        let taken = members::socket(members, place).and_then(|socket| {
            let watched = OwnedFd::from(socket.try_clone()?);
            watch(epoll, &watched, Readable::Datagrams)?;
            Ok((socket, watched))
        });
        let Ok((socket, watched)) = taken else {
            self.common.claims.release(Entry::Member(place));
            return None;
        };
        self.common.state.set_member(place, own);
        self.member = Some((place, watched));
        Some(socket)
    }

    /// As owner, steers datagrams to member sockets that are read.
    pub(super) fn steer(&mut self) {
        if !self.is_owner() || self.common.members.is_none() {
            return;
        }
        let own = self.member.as_ref().map(|(place, _)| *place);
        let is_read =
            |place| Some(place) == own || self.common.claims.is_taken(Entry::Member(place));
        let members = MemberPlace::all().filter_map(|place| {
            let partition = self.common.state.member(place)?;
            is_read(place).then_some((partition, place))
        });
        // a later attempt may succeed; each process forwards datagrams of others
        let _ = members::attach(self.common.udp.as_fd(), &members.collect::<Vec<_>>());
    }

    pub(super) fn keep_record(&mut self, record: &ConnRecord) {
        if let Some(own) = self.own {
            // without room, the peer gets no notice of the end
            let _ = self.records.keep(&self.common.claims.file, own, record);
        }
    }

    pub(super) fn erase_record(&mut self, record: &ConnRecord) {
        if let Some(own) = self.own {
            let _ = self.records.erase(&self.common.claims.file, own, record.local_id);
        }
    }

    /// Takes partitions left by ended processes, with their connections.
    pub(super) fn take_left(&mut self) -> Vec<(IdPartition, Vec<ConnRecord>)> {
        let mut left = Vec::new();
        for partition in record::used_partitions(&self.common.claims.file) {
            if Some(partition) == self.own
                || self.unsettled.contains(&partition)
                || self.common.claims.take(Entry::Partition(partition)).is_err()
            {
                continue;
            }
            let records = record::left_in(&self.common.claims.file, partition, self.address);
            self.unsettled.insert(partition);
            if records.is_empty() {
                self.settle(partition);
            } else {
                left.push((partition, records));
            }
        }
        left
    }

    /// Frees a partition whose peers are notified.
    pub(super) fn settle(&mut self, partition: IdPartition) {
        if self.unsettled.remove(&partition) {
            record::clear(&self.common.claims.file, partition);
            self.common.claims.release(Entry::Partition(partition));
        }
    }

    /// Finds the next owner, perhaps this process, if the owner has ended or is stopped. True if
    /// this process has become the owner, or no longer is.
    pub(super) fn update_role(&mut self, now: Instant, epoll: &OwnedFd, inbox: &mut Inbox) -> bool {
        let current = self.common.state.current();
        let is_over = mem::replace(&mut self.term, current) != current;
        let (address, interface, own) = (self.address, self.interface, self.own);
        if self.is_owner() {
            if is_over {
                self.role = Role::Peer { check_at: None, owner: Owner::Backoff(now) };
                self.common.state.watch(now);
                info!(%address, "another process receives for all at the address by now");
            }
            return is_over;
        }
        let is_open = inbox.is_forwarding(address, current);
        if (is_open == Some(false) || self.is_owner_stopped(now, epoll))
            && let Some(term) = self.common.state.begin_after(current)
        {
            (self.term, self.role) = (term, Role::Owner);
            unwatch(epoll, &self.common.name);
            let _ = self.watch(epoll);
            let _ = self.common.name.accept_here();
            info!(%address, term, "this process receives for all at the address");
            return true;
        }
        let Role::Peer { owner, .. } = &mut self.role else { return false };
        *owner = match mem::replace(owner, Owner::Connected) {
            _ if is_open == Some(true) => Owner::Connected,
            Owner::Connected => {
                self.common.state.watch(now);
                Owner::Backoff(now)
            }
            Owner::Requested(socket, due) => match Hello::receive(&socket) {
                // an owner that has ended may have forwarded something
                Ok(Some((hello, Some(reader)))) => {
                    let _ = inbox.add(hello, address, socket, reader);
                    Owner::Connected
                }
                _ if is_over => Owner::Backoff(now),
                Ok(None) if now < due => Owner::Requested(socket, due),
                Ok(_) | Err(_) => Owner::Backoff(now.plus(HANDOVER)),
            },
            backoff @ Owner::Backoff(_) => backoff,
        };
        if matches!(owner, Owner::Backoff(due) if *due <= now) {
            let asked = own.and_then(|own| ask(epoll, address, interface, own).ok());
            *owner = asked.map_or_else(
                || Owner::Backoff(now.plus(HANDOVER)),
                |socket| Owner::Requested(socket, now.plus(SILENCE)),
            );
        }
        false
    }

    /// True if the owner does nothing despite an arrival or a request by this process.
    fn is_owner_stopped(&mut self, now: Instant, epoll: &OwnedFd) -> bool {
        let Role::Peer { check_at, owner } = &mut self.role else { return false };
        if matches!(owner, Owner::Backoff(due) if *due <= now) && self.common.state.is_silent(now) {
            return true;
        }
        let Some(due) = check_at.take_if(|due| *due <= now) else { return false };
        if due.plus(SILENCE) <= now {
            // this process was stopped too, perhaps with the owner
            self.common.state.watch(now);
            *check_at = Some(now.plus(SILENCE));
            return false;
        }
        let is_awaited =
            is_readable(self.common.udp.as_fd()) || is_readable(self.common.name.as_fd());
        let is_stopped = is_awaited && self.common.state.is_silent(now);
        if !is_stopped {
            let _ = self.watch(epoll);
        }
        is_stopped
    }

    pub(super) fn leave(&self, epoll: &OwnedFd) {
        unwatch(epoll, &self.common.udp);
        unwatch(epoll, &self.common.name);
        self.member.iter().for_each(|(_, socket)| unwatch(epoll, socket));
    }
}

/// Asks an address's owner to forward datagrams for this process.
fn ask(epoll: &OwnedFd, address: IpAddr, interface: u32, own: IdPartition) -> io::Result<OwnedFd> {
    let socket = connect(&of_address(address, interface))?;
    watch(epoll, &socket, Readable::News)?;
    Hello::RegisterPeer(own.get()).send(&socket)?;
    Ok(socket)
}

impl Drop for SharedAddress {
    /// The last process with the name ends it. Nobody joins until that process's claims are closed.
    fn drop(&mut self) {
        if self.common.name.is_own() && self.common.claims.take(Entry::Name).is_ok() {
            self.common.name.end();
        }
    }
}
