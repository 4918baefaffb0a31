//! The owner of a shared address, and how a process becomes it.

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
    listener::{Listeners, request_grant},
    members::{self, MakeSocket, MemberPlace, MemberSockets},
    record::{self, OwnRecords},
    socket::{Readable, is_closed, poll_with, send_with, unwatch, watch_for},
    term::Terms,
};
use crate::{
    link::{
        name::Name,
        rings::{SILENCE, Sender, Writer},
    },
    readiness::is_readable,
};

/// Time after which it is tried again to have an address that passes from one process to another.
pub(super) const HANDOVER: Duration = Duration::from_millis(2);
/// An address that other processes may have, too.
pub(super) struct SharedAddress {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    /// The UDP socket.
    udp: OwnedFd,
    /// The socket with the address's name. The owner alone accepts there.
    name: Arc<Name>,
    /// Makes member sockets.
    make_socket: MakeSocket,
    /// The member sockets, if there are any. All processes at the address have the same.
    members: Option<MemberSockets>,
    /// The one that this process reads.
    member: Option<(MemberPlace, OwnedFd)>,
    /// What the owner has told the kernel of them; `None`: nothing yet.
    steered: Option<Vec<(IdPartition, MemberPlace)>>,
    pub(super) claims: ClaimTable,
    terms: Terms,
    /// The term of this process's owner, or of the one that it had last.
    term: Option<u64>,
    /// Services that this device listens for.
    pub(super) services: BTreeSet<ServiceId>,
    /// Records of this device's connections.
    pub(super) records: OwnRecords,
    /// Partitions of processes that have ended, which are not settled.
    unsettled: BTreeSet<IdPartition>,
    role: Role,
}

/// Role of this process at an address.
enum Role {
    Owner,
    Peer {
        /// Connection to the owner, which is closed when the owner ends.
        owner: Arc<OwnedFd>,
        /// Something has arrived for the owner to read. If it still does nothing at this time, it
        /// is stopped.
        check_at: Option<Instant>,
    },
    /// Has asked the owner for a grant, and waits for it until then.
    Requesting(OwnedFd, Instant),
    /// The owner has ended. The next one is looked for from this time on.
    Searching(Instant),
}

/// What a process gets from the owner that it becomes a peer of. `members`: if there are any.
pub(super) struct Grant {
    pub(super) ring: OwnedFd,
    pub(super) udp: OwnedFd,
    pub(super) name: Name,
    pub(super) claims: [OwnedFd; 3],
    pub(super) members: Option<OwnedFd>,
    /// The owner's term.
    pub(super) term: u64,
}

/// The sockets of an address, and how others like its UDP socket are made.
pub(super) struct Sockets {
    pub(super) udp: OwnedFd,
    pub(super) name: Arc<Name>,
    pub(super) make_socket: MakeSocket,
}

/// What of a link the roles at its addresses concern.
pub(super) struct Place<'a> {
    pub(super) epoll: &'a OwnedFd,
    pub(super) wakeup: &'a OwnedFd,
    pub(super) listeners: &'a mut Listeners,
}

/// What has become of this process at an address.
pub(super) enum Change {
    /// It is a peer, with this grant, by this connection to the owner.
    Granted(Grant, Arc<OwnedFd>),
    /// It is the owner no more.
    Resigned,
}

impl Grant {
    /// The owner's grant; nothing while it has not answered.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Self>> {
        let mut term = [0; 8];
        let Some((_, mut descriptors)) = poll_with(socket, &mut term)? else { return Ok(None) };
        let members = (descriptors.len() > 6).then(|| descriptors.pop()).flatten();
        let [ring, udp, name, table, low, high] =
            descriptors.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let claims = [table, low, high];
        let (term, name) = (u64::from_ne_bytes(term), Name::join(name));
        Ok(Some(Self { ring, udp, name, claims, members, term }))
    }
}

impl SharedAddress {
    /// An address of which this process is the owner: the first one.
    pub(super) fn owned(
        epoll: &OwnedFd,
        address: IpAddr,
        interface: u32,
        sockets: Sockets,
    ) -> io::Result<Self> {
        watch_for(epoll, &sockets.udp, Readable::Datagrams)?;
        let claims = ClaimTable::new()?;
        claims.share_name()?;
        let terms = claims.terms()?;
        let term = Some(terms.current());
        Ok(Self::new(address, interface, sockets, None, claims, (terms, term), Role::Owner))
    }

    /// An address that another process owns, to which `owner` is the connection.
    pub(super) fn granted(
        epoll: &OwnedFd,
        address: IpAddr,
        interface: u32,
        grant: Grant,
        owner: Arc<OwnedFd>,
        make_socket: MakeSocket,
    ) -> io::Result<Self> {
        let Grant { udp, name, claims, members, term, .. } = grant;
        let members = members.map(MemberSockets::join);
        let claims = ClaimTable::join_with(&claims)?;
        claims.share_name()?;
        if name.has_ended() {
            return Err(io::ErrorKind::ConnectionRefused.into()); // with the last process
        }
        let sockets = Sockets { udp, name: Arc::new(name), make_socket };
        let terms = (claims.terms()?, Some(term));
        let role = Role::Peer { owner, check_at: None };
        let shared = Self::new(address, interface, sockets, members, claims, terms, role);
        shared.watch_owner(epoll)?;
        Ok(shared)
    }

    fn new(
        address: IpAddr,
        interface: u32,
        Sockets { udp, name, make_socket }: Sockets,
        members: Option<MemberSockets>,
        claims: ClaimTable,
        (terms, term): (Terms, Option<u64>),
        role: Role,
    ) -> Self {
        Self {
            address,
            interface,
            udp,
            name,
            make_socket,
            members,
            member: None,
            steered: None,
            claims,
            terms,
            term,
            services: BTreeSet::new(),
            records: OwnRecords::default(),
            unsettled: BTreeSet::new(),
            role,
        }
    }

    pub(super) const fn is_owner(&self) -> bool {
        matches!(self.role, Role::Owner)
    }

    /// The connection to the owner, if that is another process.
    pub(super) const fn owner(&self) -> Option<&Arc<OwnedFd>> {
        if let Role::Peer { owner, .. } = &self.role { Some(owner) } else { None }
    }

    /// Time at which its [role](Self::update_role) may change although nothing arrives.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.role {
            Role::Owner => None,
            Role::Peer { check_at, .. } => check_at,
            Role::Requesting(_, due) | Role::Searching(due) => Some(due),
        }
    }

    /// The owner counts a round. Returns true if the role may change now.
    pub(super) fn begin_round(&self, now: Instant) -> bool {
        if self.is_owner() {
            self.terms.count_round();
        }
        let is_over = matches!(self.role, Role::Owner | Role::Peer { .. })
            && Some(self.terms.current()) != self.term;
        is_over || self.deadline().is_some_and(|due| due <= now)
    }

    /// Something has arrived that the owner is to read.
    pub(super) fn note_arrival(&mut self, now: Instant) {
        if let Role::Peer { check_at: check_at @ None, .. } = &mut self.role {
            *check_at = Some(now.plus(SILENCE));
            self.terms.watch(now);
        }
    }

    /// Looks for the owner anew, although it may not have ended.
    pub(super) fn search(&mut self, due: Instant) {
        self.terms.watch(due);
        self.term = None;
        self.role = Role::Searching(due);
    }

    /// Grants the address to the process at the other end of `socket`, which `wakeup` wakes.
    pub(super) fn grant(&mut self, socket: &OwnedFd, wakeup: OwnedFd) -> io::Result<Sender> {
        let (writer, memory) = Writer::new()?;
        self.name.share();
        if self.terms.begin_members() {
            // where there can be none, everything is forwarded
            let members = MemberSockets::new(&self.udp, &self.make_socket);
            self.members = members
                .inspect_err(|error| debug!(address = %self.address, %error, "no member sockets"))
                .ok();
        }
        let descriptors = [memory.as_fd(), self.udp.as_fd(), self.name.as_fd()];
        // a former owner that went on may have been just about to say something else
        self.steered = None;
        let members = self.members.as_ref().map(AsFd::as_fd);
        let descriptors: Vec<_> =
            descriptors.into_iter().chain(self.claims.files()).chain(members).collect();
        send_with(socket, &self.term.unwrap_or_default().to_ne_bytes(), &descriptors)?;
        Ok(Sender::new(writer, wakeup))
    }

    // Member sockets.

    /// Takes a member socket for this partition, which the owner is to be told then. A process that
    /// is the owner when it comes needs none.
    pub(super) fn take_member(&mut self, epoll: &OwnedFd, own: IdPartition) -> Option<Socket> {
        if self.member.is_some() {
            return None;
        }
        let members = self.members.as_ref()?;
        let is_free = |place: &MemberPlace| self.claims.take(Entry::Member(*place)).is_ok();
        let place = MemberPlace::all().find(is_free)?;
        let taken = members.socket(place).and_then(|socket| {
            let watched = OwnedFd::from(socket.try_clone()?);
            watch_for(epoll, &watched, Readable::Datagrams)?;
            Ok((socket, watched))
        });
        let Ok((socket, watched)) = taken else {
            self.claims.release(Entry::Member(place));
            return None;
        };
        self.terms.set_member(place, own);
        self.member = Some((place, watched));
        Some(socket)
    }

    /// The owner has the kernel put what is for processes with member sockets there.
    pub(super) fn steer(&mut self) {
        if !self.is_owner() || self.members.is_none() {
            return;
        }
        let own = self.member.as_ref().map(|(place, _)| *place);
        let is_read = |place| Some(place) == own || self.claims.is_taken(Entry::Member(place));
        let members = MemberPlace::all().filter_map(|place| {
            let partition = self.terms.member(place)?;
            is_read(place).then_some((partition, place))
        });
        let members: Vec<_> = members.collect();
        if self.steered.as_ref() != Some(&members) {
            // if it fails, the next time may do; each process passes on what is not its own
            self.steered = members::attach(self.udp.as_fd(), &members).is_ok().then_some(members);
        }
    }

    // What others leave.

    /// Takes the partitions that ended processes have left behind, with their connections. `own`:
    /// that of this device.
    pub(super) fn take_left(
        &mut self,
        own: Option<IdPartition>,
    ) -> Vec<(IdPartition, Vec<ConnRecord>)> {
        let mut left = Vec::new();
        for partition in record::used_partitions(self.claims.file()) {
            if Some(partition) == own
                || self.unsettled.contains(&partition)
                || self.claims.take(Entry::Partition(partition)).is_err()
            {
                continue;
            }
            let records = record::left_in(self.claims.file(), partition, self.address);
            self.unsettled.insert(partition);
            if records.is_empty() {
                self.settle(partition);
            } else {
                left.push((partition, records));
            }
        }
        left
    }

    /// True if a process that has ended has had this partition.
    pub(super) fn is_left(&self, partition: IdPartition) -> bool {
        record::used_partitions(self.claims.file()).contains(&partition)
    }

    /// Such a partition may be another process's.
    pub(super) fn settle(&mut self, partition: IdPartition) {
        if self.unsettled.remove(&partition) {
            record::clear(self.claims.file(), partition);
            self.claims.release(Entry::Partition(partition));
        }
    }

    /// If the owner has ended or is stopped, looks for the next one, which may be this process.
    pub(super) fn update_role(&mut self, now: Instant, place: &mut Place<'_>) -> Option<Change> {
        let is_over = Some(self.terms.current()) != self.term;
        let mut change = None;
        self.role = match mem::replace(&mut self.role, Role::Searching(now.plus(HANDOVER))) {
            Role::Owner if is_over => {
                self.resign(place);
                self.terms.watch(now);
                change = Some(Change::Resigned);
                Role::Searching(now)
            }
            Role::Peer { owner, .. } if is_over || is_closed(&owner) => {
                self.terms.watch(now);
                Role::Searching(now)
            }
            // this process has been stopped itself, the owner with it perhaps
            Role::Peer { owner, check_at: Some(due) } if due.plus(SILENCE) <= now => {
                self.terms.watch(now);
                Role::Peer { owner, check_at: Some(now.plus(SILENCE)) }
            }
            Role::Peer { owner, check_at: Some(due) } if due <= now => {
                let is_awaited = is_readable(self.udp.as_fd()) || is_readable(self.name.as_fd());
                match self.terms.silent(now).filter(|_| is_awaited) {
                    Some(term) => self.succeed(now, term, place),
                    None => {
                        let _ = self.watch_owner(place.epoll);
                        Role::Peer { owner, check_at: None }
                    }
                }
            }
            Role::Requesting(socket, due) => match Grant::receive(&socket) {
                Ok(None) if now < due => Role::Requesting(socket, due),
                Ok(None) => Role::Searching(now),
                Ok(Some(mut grant)) => {
                    let members = grant.members.take().map(MemberSockets::join);
                    self.members = self.members.take().or(members);
                    debug!(address = %self.address, "another process receives for this one");
                    self.term = Some(grant.term);
                    let _ = self.watch_owner(place.epoll);
                    let owner = Arc::new(socket);
                    change = Some(Change::Granted(grant, owner.clone()));
                    Role::Peer { owner, check_at: None }
                }
                Err(_) => return None,
            },
            other => other,
        };
        if matches!(self.role, Role::Searching(due) if due <= now) {
            // the term of the owner that has ended, or of one that is stopped
            let ended = self.term.filter(|term| *term == self.terms.current());
            self.role = match ended.or_else(|| self.terms.silent(now)) {
                Some(term) => self.succeed(now, term, place),
                None => self.request(now, place),
            };
        }
        change
    }

    /// Becomes the owner after this term, unless another process does.
    fn succeed(&mut self, now: Instant, term: u64, place: &mut Place<'_>) -> Role {
        let Place { epoll, listeners, .. } = place;
        let again = Role::Searching(now.plus(HANDOVER));
        let Some(own) = self.terms.begin_after(term) else { return again };
        self.term = Some(own);
        self.steered = None;
        // From now on this process reads the UDP socket, and accepts. A thread that sleeps does so on
        // this link's descriptor.
        unwatch(epoll, &self.name);
        let _ = watch_for(epoll, &self.udp, Readable::Datagrams);
        let name = self.name.clone();
        let _ = name.accept_here().and_then(|()| listeners.adopt(epoll, self.address, name));
        info!(address = %self.address, term = own, "this process receives for all at the address");
        Role::Owner
    }

    /// Asks the owner for a grant.
    fn request(&self, now: Instant, place: &Place<'_>) -> Role {
        let Place { epoll, wakeup, .. } = place;
        match request_grant(epoll, wakeup, self.address, self.interface) {
            Ok(socket) => Role::Requesting(socket, now.plus(SILENCE)),
            Err(_) => Role::Searching(now.plus(HANDOVER)),
        }
    }

    /// Leaves to the process that has begun another term what the owner does.
    fn resign(&mut self, place: &mut Place<'_>) {
        place.listeners.resign(place.epoll, self.address);
        let _ = self.watch_owner(place.epoll);
        info!(address = %self.address, "another process receives for all at the address by now");
    }

    /// Has this process hear when something arrives for the owner.
    fn watch_owner(&self, epoll: &OwnedFd) -> io::Result<()> {
        watch_for(epoll, &self.udp, Readable::Others)?;
        watch_for(epoll, &self.name, Readable::Others)
    }

    /// Gives the address up.
    pub(super) fn leave(&self, epoll: &OwnedFd) {
        unwatch(epoll, &self.udp);
        unwatch(epoll, &self.name);
        self.member.iter().for_each(|(_, socket)| unwatch(epoll, socket));
    }
}

impl Drop for SharedAddress {
    /// The last process that has the name ends it. None joins until its claims are closed.
    fn drop(&mut self) {
        if self.name.is_own() && self.claims.take(Entry::Name).is_ok() {
            self.name.end();
        }
    }
}
