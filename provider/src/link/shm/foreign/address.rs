//! An address at which this process is the foreign peer.

use std::{
    collections::{BTreeMap, BTreeSet},
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
use tracing::{info, warn};

use super::{
    super::{
        credentials::check_receiver,
        members::MakeSocket,
        owner::HANDOVER,
        socket::{connect_unchecked, listen, poll_with, send_with, watch},
    },
    message::{self, Answer, HELLO_FOREIGN, LONGEST, Request},
};
use crate::{clock, link::TrustedUsers, readiness::wait};

/// Time that the owner has to answer.
const ANSWER: Duration = Duration::from_millis(600);
/// Longest time between two attempts to have the address again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of messages that are read in one go.
const BATCH: usize = 16;

/// An address that a process of another user receives for.
pub(in super::super) struct ForeignAddress {
    pub(in super::super) address: IpAddr,
    pub(in super::super) interface: u32,
    make_socket: MakeSocket,
    trusted: TrustedUsers,
    state: State,
    /// This device's partition, once it is chosen, and what shows it to the next owner.
    partition: Option<IdPartition>,
    token: u64,
    /// Services that this device listens for, and all that processes at the address do.
    services: BTreeSet<ServiceId>,
    taken: BTreeSet<ServiceId>,
    /// Connections, by communication ID.
    records: BTreeMap<u32, ConnRecord>,
    /// Size of the owner's receive buffer.
    receive_buffer: u32,
}

enum State {
    Joined(Arc<OwnedFd>),
    /// Has asked an owner, and waits for it until then. What it has granted: the ring.
    Asking(OwnedFd, Option<OwnedFd>, Instant),
    /// There is no owner, or none that can be had. Tried again at that time, and after this one.
    Searching(Instant, Duration),
}

/// What has become of this process at such an address.
pub(in super::super) enum ForeignChange {
    /// The owner has ended.
    Lost,
    /// There is another one, which writes into this ring.
    Granted(OwnedFd),
    /// There is none: this process is, by these sockets: the UDP socket, and that of the name.
    Owner(Socket, OwnedFd),
}

/// What a foreign peer is, and has to have as owner.
pub(in super::super) struct Standing {
    pub(in super::super) interface: u32,
    pub(in super::super) make_socket: MakeSocket,
    pub(in super::super) services: BTreeSet<ServiceId>,
    pub(in super::super) records: BTreeMap<u32, ConnRecord>,
}

impl ForeignAddress {
    /// Asks the process that has the address, and waits for its answer. Returns also the ring that it
    /// writes into.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it is not trusted.
    pub(in super::super) fn join(
        epoll: &OwnedFd,
        address: IpAddr,
        interface: u32,
        trusted: TrustedUsers,
        make_socket: MakeSocket,
    ) -> io::Result<(Self, OwnedFd)> {
        let socket = ask(epoll, address, interface, trusted)?;
        wait(&[socket.as_fd()], Some(ANSWER))?;
        let (receive_buffer, ring) = granted(&socket)?.ok_or(io::ErrorKind::TimedOut)?;
        let this = Self {
            address,
            interface,
            make_socket,
            trusted,
            state: State::Joined(Arc::new(socket)),
            partition: None,
            token: 0,
            services: BTreeSet::new(),
            taken: BTreeSet::new(),
            records: BTreeMap::new(),
            receive_buffer,
        };
        Ok((this, ring))
    }

    /// The connection to the owner, while there is one.
    pub(in super::super) const fn owner(&self) -> Option<&Arc<OwnedFd>> {
        if let State::Joined(owner) = &self.state { Some(owner) } else { None }
    }

    /// Size of the owner's receive buffer, in bytes.
    pub(in super::super) const fn receive_buffer(&self) -> usize {
        self.receive_buffer as usize
    }

    /// Takes a partition, and waits for the owner's answer.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process has it.
    pub(in super::super) fn take_partition(&mut self, partition: IdPartition) -> io::Result<()> {
        let owner = self.owner().ok_or(io::ErrorKind::NotConnected)?.clone();
        message::send(&owner, &Request::Partition(partition, self.token).encode())?;
        let end = clock::now().plus(ANSWER);
        let mut buffer = vec![0; LONGEST];
        loop {
            match receive(&owner, &mut buffer)? {
                Some(Answer::Partition(Some(token))) => {
                    (self.partition, self.token) = (Some(partition), token);
                    return Ok(());
                }
                Some(Answer::Partition(None)) => return Err(io::ErrorKind::AddrInUse.into()),
                Some(other) => self.note(other),
                None => {
                    let left = end.since(clock::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    wait(&[owner.as_fd()], Some(left))?;
                }
            }
        }
    }

    /// Listens for a service.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process does, as far as that has been told.
    pub(in super::super) fn claim(&mut self, now: Instant, service: ServiceId) -> io::Result<()> {
        self.read(now);
        if self.is_claimed(service) || self.services.len() >= message::MAX_SERVICES {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if self.services.insert(service) {
            self.announce(now);
        }
        Ok(())
    }

    /// True if another process listens for it, as far as that has been told.
    pub(in super::super) fn is_claimed(&self, service: ServiceId) -> bool {
        self.taken.contains(&service) && !self.services.contains(&service)
    }

    /// Listens for it no more.
    pub(in super::super) fn release(&mut self, now: Instant, service: ServiceId) {
        if self.services.remove(&service) {
            self.announce(now);
        }
    }

    /// Has the owner keep the record of an own connection.
    pub(in super::super) fn keep_record(&mut self, now: Instant, record: &ConnRecord) {
        self.records.insert(record.local_id, *record);
        self.tell(now, &Request::record(record));
    }

    /// Has it erase one.
    pub(in super::super) fn erase_record(&mut self, now: Instant, local_id: u32) {
        if self.records.remove(&local_id).is_some() {
            self.tell(now, &Request::Erase(local_id));
        }
    }

    /// Tells the owner what this process listens for.
    fn announce(&mut self, now: Instant) {
        self.tell(now, &Request::Services(self.services.clone()));
    }

    /// Tells the owner something. One that reads nothing any more is asked anew.
    fn tell(&mut self, now: Instant, request: &Request) {
        if let Some(owner) = self.owner()
            && message::send(owner, &request.encode()).is_err()
        {
            self.state = State::Searching(now, HANDOVER);
        }
    }

    /// Takes what the owner tells at any time.
    fn note(&mut self, answer: Answer) {
        let address = self.address;
        match answer {
            Answer::Taken(services) => self.taken = services,
            // of two that begin at the same time, one has heard of the other too late
            Answer::Refused(services) => {
                warn!(%address, ?services, "another process listens for the same, and was first");
            }
            Answer::Granted(_) | Answer::Partition(_) | Answer::Wake => {}
        }
    }

    /// Reads what the owner tells. Without an owner, one is looked for from now on.
    fn read(&mut self, now: Instant) {
        let Some(owner) = self.owner().cloned() else { return };
        let mut buffer = vec![0; LONGEST];
        for _ in 0..BATCH {
            match receive(&owner, &mut buffer) {
                Ok(Some(answer)) => self.note(answer),
                Ok(None) => return,
                Err(_) => {
                    self.state = State::Searching(now, HANDOVER);
                    return;
                }
            }
        }
    }

    /// Asks for the address anew, after some time.
    pub(in super::super) fn lose(&mut self, now: Instant) {
        self.state = State::Searching(now.plus(PATIENCE), PATIENCE);
    }

    /// Time of the next [update](Self::update) although nothing arrives.
    pub(in super::super) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Joined(_) => None,
            State::Asking(_, _, due) | State::Searching(due, _) => Some(due),
        }
    }

    /// Reads what the owner says, and looks for the next one if it has ended.
    pub(in super::super) fn update(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
    ) -> Option<ForeignChange> {
        if self.owner().is_some() {
            self.read(now);
            return self.owner().is_none().then_some(ForeignChange::Lost);
        }
        let state = mem::replace(&mut self.state, State::Searching(now, HANDOVER));
        let (state, change) = match state {
            State::Asking(socket, ring, until) => self.hear(now, socket, ring, until),
            State::Searching(due, patience) if due <= now => self.search(now, patience, epoll),
            other => (other, None),
        };
        self.state = state;
        if matches!(change, Some(ForeignChange::Granted(..))) {
            self.announce(now);
            for record in mem::take(&mut self.records).into_values() {
                self.keep_record(now, &record);
            }
        }
        change
    }

    /// Takes the answers of an owner that has been asked.
    fn hear(
        &mut self,
        now: Instant,
        socket: OwnedFd,
        ring: Option<OwnedFd>,
        until: Instant,
    ) -> (State, Option<ForeignChange>) {
        let again = (State::Searching(now.plus(HANDOVER), HANDOVER), None);
        let later = (State::Searching(now.plus(PATIENCE), PATIENCE), None);
        let Some(ring) = ring else {
            return match (granted(&socket), self.partition) {
                (Ok(Some((receive_buffer, ring))), Some(partition)) => {
                    self.receive_buffer = receive_buffer;
                    let request = Request::Partition(partition, self.token).encode();
                    match message::send(&socket, &request) {
                        Ok(()) => (State::Asking(socket, Some(ring), until), None),
                        Err(_) => again,
                    }
                }
                (Ok(None), _) if now < until => (State::Asking(socket, None, until), None),
                // it is stopped, perhaps
                (Ok(_), _) => later,
                (Err(_), _) => again,
            };
        };
        match receive(&socket, &mut vec![0; LONGEST]) {
            Ok(Some(Answer::Partition(Some(token)))) => {
                self.token = token;
                info!(address = %self.address, "another process receives for this one");
                (State::Joined(Arc::new(socket)), Some(ForeignChange::Granted(ring)))
            }
            Ok(Some(Answer::Partition(None))) => {
                warn!(address = %self.address, "another process has this one's numbers there");
                later
            }
            Ok(Some(other)) => {
                self.note(other);
                (State::Asking(socket, Some(ring), until), None)
            }
            Ok(None) if now < until => (State::Asking(socket, Some(ring), until), None),
            Ok(None) => later,
            Err(_) => again,
        }
    }

    /// Asks the owner, or has the address if there is none. `patience`: since the last attempt.
    fn search(
        &self,
        now: Instant,
        patience: Duration,
        epoll: &OwnedFd,
    ) -> (State, Option<ForeignChange>) {
        let (before, patience) = (patience, PATIENCE.min(patience * 2));
        let later = State::Searching(now.plus(patience), patience);
        let Self { address, interface, trusted, make_socket, .. } = self;
        match ask(epoll, *address, *interface, *trusted) {
            Ok(socket) => (State::Asking(socket, None, now.plus(ANSWER)), None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let own =
                    listen(*address, *interface).and_then(|name| Ok((make_socket(false)?, name)));
                match own {
                    Ok((udp, name)) => (later, Some(ForeignChange::Owner(udp, name))),
                    // its socket is not closed yet, or another process was first
                    Err(_) => (later, None),
                }
            }
            Err(error) => {
                if before < patience && patience == PATIENCE {
                    warn!(%address, %error, "nobody receives for this process");
                }
                (later, None)
            }
        }
    }

    /// What this process has to have when it becomes the owner.
    pub(in super::super) fn into_standing(self) -> Standing {
        let Self { interface, make_socket, services, records, .. } = self;
        Standing { interface, make_socket, services, records }
    }
}

/// Asks the process that has the address to receive for this one, if that is trusted to.
fn ask(
    epoll: &OwnedFd,
    address: IpAddr,
    interface: u32,
    trusted: TrustedUsers,
) -> io::Result<OwnedFd> {
    let socket = connect_unchecked(address, interface)?;
    check_receiver(&socket, trusted)?;
    watch(epoll, &socket)?;
    send_with(&socket, &HELLO_FOREIGN, &[])?;
    Ok(socket)
}

/// The owner's first answer: the size of its receive buffer, and the ring.
fn granted(socket: &OwnedFd) -> io::Result<Option<(u32, OwnedFd)>> {
    let mut bytes = [0; 16];
    let Some((length, mut descriptors)) = poll_with(socket, &mut bytes)? else { return Ok(None) };
    match (Answer::decode(&bytes[..length]), descriptors.pop()) {
        (Some(Answer::Granted(receive_buffer)), Some(ring)) => Ok(Some((receive_buffer, ring))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The owner's next answer.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<Answer>> {
    let Some(length) = message::receive(socket, buffer)? else { return Ok(None) };
    Answer::decode(&buffer[..length]).map(Some).ok_or(io::ErrorKind::InvalidData.into())
}
