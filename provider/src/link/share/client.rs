//! Addresses at which the service receives for a device.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use roce_transport::{
    cm::{ConnId, ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};
use rustix::{event::epoll, io::Errno, net::RecvFlags};
use tracing::{info, warn};

use super::{
    admission,
    message::{Greeting, JoinRequest, Request, Response},
};
use crate::{
    cancel::Uncancelled,
    clock,
    link::{
        BATCH, CHECK_INTERVAL, RunSink,
        arrival::Arrival,
        conn_record,
        descriptors::receive_with,
        ensure,
        epoll::{Readable, watch},
        message,
        name::Name,
    },
    readiness::wait,
    signals::without_sigpipe,
    sync::Mutex,
};

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(600);
/// Backoff between attempts to reach the service.
const RETRY: Duration = Duration::from_millis(2);
const RETRY_MOST: Duration = Duration::from_millis(500);
/// Connections examined per poll, from processes that pose as the service.
const ACCEPT_BATCH: usize = 16;
/// A header and the longest UDP datagram.
const LONGEST: usize = Arrival::LEN + 65_536;

#[derive(Default)]
pub(in crate::link) struct Clients {
    pub(in crate::link) clients: Vec<Client>,
    /// Readable when a client's descriptor is. Never replaced.
    epoll: Option<OwnedFd>,
    pub(in crate::link) look_at: Instant,
    records: BTreeMap<ConnId, ConnRecord>,
}

pub(in crate::link) struct Client {
    pub(in crate::link) address: IpAddr,
    pub(in crate::link) interface: u32,
    directory: PathBuf,
    pub(super) partition: IdPartition,
    services: BTreeSet<ServiceId>,
    /// Requests without room in the pipe.
    unsent: VecDeque<Request>,
    receive_buffer: usize,
    state: State,
    buffer: Box<[u8]>,
}

enum State {
    Joined(OwnedFd, Arc<Control>),
    /// Waiting for the service until this time.
    Connecting(Waiting, Instant),
    /// Without a service: the next attempt, and the backoff after it.
    Disconnected(Instant, Duration),
}

pub(in crate::link) struct Control {
    pub(super) requests: OwnedFd,
    responses: OwnedFd,
    /// Number of the last request that expects a response. Locked while a thread waits.
    last: Mutex<u32>,
}

impl Clients {
    pub(in crate::link) fn add(&mut self, client: Client) -> io::Result<()> {
        if self.epoll.is_none() {
            self.epoll = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        }
        self.epoll.iter().try_for_each(|epoll| client.watch(epoll))?;
        self.clients.push(client);
        Ok(())
    }

    /// The same at all addresses; `None`: no address.
    pub(in crate::link) fn partition(&self) -> Option<IdPartition> {
        self.clients.first().map(|client| client.partition)
    }

    pub(in crate::link) fn addresses(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.clients.iter().map(|client| (client.address, client.interface))
    }

    pub(in crate::link) fn at(&mut self, address: IpAddr) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| client.address == address)
    }

    pub(in crate::link) fn keep_record(&mut self, conn: ConnId, record: &ConnRecord) {
        if let Some(client) = self.at(record.local) {
            client.submit(Request::Keep(conn_record::encode(record)));
            self.records.insert(conn, *record);
        }
    }

    pub(in crate::link) fn discard_record(&mut self, conn: ConnId) {
        if let Some(record) = self.records.remove(&conn)
            && let Some(client) = self.at(record.local)
        {
            client.submit(Request::Erase(record.local_id));
        }
    }

    pub(in crate::link) fn forget(&mut self, address: IpAddr) {
        self.clients.retain(|client| client.address != address);
    }

    /// Of the client with the fewest bytes.
    pub(in crate::link) fn receive_buffer(&self) -> Option<usize> {
        self.clients.iter().map(|client| client.receive_buffer).min()
    }

    pub(in crate::link) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }

    pub(in crate::link) fn deadline(&self) -> Option<Instant> {
        self.clients.iter().filter_map(Client::deadline).min()
    }

    /// Hands over some of the arrived runs and returns their number.
    pub(in crate::link) fn receive(&mut self, now: Instant, sink: &mut RunSink<'_>) -> usize {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        let Self { clients, epoll: Some(epoll), records, look_at } = self else { return 0 };
        if is_due || *look_at <= now {
            *look_at = now.plus(CHECK_INTERVAL);
            let _uncancelled = Uncancelled::begin(); // descriptors may be closed
            for client in &mut *clients {
                if client.update(now, records) {
                    // on failure, the client looks at its deadline
                    let _ = client.watch(epoll);
                }
            }
        }
        clients.iter_mut().map(|client| client.receive(now, sink)).sum()
    }
}

impl Client {
    /// Asks the service to receive at an address. Blocks. `wanted`: the device's partition
    /// elsewhere. `None`: no service has the address. Errors: [`io::ErrorKind::TimedOut`] without a
    /// response; [`io::ErrorKind::AddrInUse`] if another process has the partition, or the user has
    /// reached its limit.
    pub(in crate::link) fn join(
        directory: &Path,
        address: IpAddr,
        interface: u32,
        wanted: Option<IdPartition>,
    ) -> io::Result<Option<Self>> {
        let end = clock::now().plus(RESPONSE_TIMEOUT);
        let mut waiting = loop {
            match Waiting::request(directory, address, interface, wanted) {
                Ok(waiting) => break waiting,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if end <= clock::now() => return Err(error),
                Err(_) => thread::sleep(RETRY), // the FIFO is full
            }
        };
        let (greeting, state) = loop {
            if let Some(joined) = waiting.poll()? {
                break joined;
            }
            let left = end.since(clock::now());
            ensure(!left.is_zero(), io::ErrorKind::TimedOut)?;
            wait(&[waiting.descriptor()], Some(left))?;
        };
        Ok(Some(Self {
            address,
            interface,
            directory: directory.into(),
            partition: IdPartition::new(greeting.partition).ok_or(io::ErrorKind::AddrInUse)?,
            services: BTreeSet::new(),
            unsent: VecDeque::new(),
            receive_buffer: greeting.receive_buffer as usize,
            state,
            buffer: vec![0; LONGEST].into(),
        }))
    }

    pub(in crate::link) fn control(&self) -> Option<&Arc<Control>> {
        if let State::Joined(_, control) = &self.state { Some(control) } else { None }
    }

    /// Listens for a service, already granted if [asked](Control::ask) for.
    pub(in crate::link) fn claim(&mut self, service: ServiceId) {
        if self.services.insert(service) {
            self.submit(Request::Claim(service.0));
        }
    }

    pub(in crate::link) fn release(&mut self, service: ServiceId) {
        if self.services.remove(&service) {
            self.submit(Request::Release(service.0));
        }
    }

    pub(super) fn submit(&mut self, request: Request) {
        self.unsent.push_back(request);
        self.flush();
    }

    /// Sends while the pipe has room. The next service gets everything again.
    fn flush(&mut self) {
        let Self { unsent, state: State::Joined(_, control), .. } = self else {
            return self.unsent.clear();
        };
        while unsent.front().is_some_and(|request| control.send(0, request)) {
            unsent.pop_front();
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Joined(data, _) => Some(data.as_fd()),
            State::Connecting(waiting, _) => Some(waiting.descriptor()),
            State::Disconnected(..) => None,
        }
    }

    /// Closed descriptors are no longer watched.
    fn watch(&self, epoll: &OwnedFd) -> io::Result<()> {
        self.descriptor().map_or(Ok(()), |it| watch(epoll, it, Readable::Datagrams))
    }

    const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Joined(..) => None,
            State::Connecting(_, due) | State::Disconnected(due, _) => Some(due),
        }
    }

    /// Looks for a service while there is none. True if [`descriptor`](Self::descriptor) may have
    /// changed.
    pub(super) fn update(&mut self, now: Instant, records: &BTreeMap<ConnId, ConnRecord>) -> bool {
        self.state = match &mut self.state {
            State::Joined(..) => {
                self.flush();
                return false;
            }
            State::Disconnected(due, _) if now < *due => return false,
            State::Disconnected(_, wait) => {
                let next = State::Disconnected(now.plus(*wait), RETRY_MOST.min(*wait * 2));
                let (own, until) = (Some(self.partition), now.plus(RESPONSE_TIMEOUT));
                Waiting::request(&self.directory, self.address, self.interface, own)
                    .map_or(next, |waiting| State::Connecting(waiting, until))
            }
            State::Connecting(waiting, until) => match waiting.poll() {
                Ok(Some((Greeting { partition: 0, .. }, _))) => {
                    warn!(address = %self.address, "others have this process's numbers");
                    State::Disconnected(now.plus(RETRY_MOST), RETRY_MOST)
                }
                Ok(Some((greeting, state))) => {
                    info!(address = %self.address, "the service receives for this process again");
                    self.receive_buffer = greeting.receive_buffer as usize;
                    self.unsent.extend(self.services.iter().map(|it| Request::Claim(it.0)));
                    let own = records.values().filter(|record| record.local == self.address);
                    self.unsent.extend(own.map(|it| Request::Keep(conn_record::encode(it))));
                    state
                }
                Ok(None) if now < *until => return true,
                Ok(None) | Err(_) => State::Disconnected(now.plus(RETRY), RETRY),
            },
        };
        self.flush();
        true
    }

    /// See [`Clients::receive`].
    pub(super) fn receive(&mut self, now: Instant, sink: &mut RunSink<'_>) -> usize {
        let State::Joined(data, _) = &self.state else { return 0 };
        for count in 0..BATCH {
            match rustix::net::recv(data, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, length @ 1..)) => {
                    if let Some((header, bytes)) = self.buffer[..length].split_first_chunk() {
                        Arrival::decode(header).hand_over(self.address, bytes, sink);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return count,
                Ok(_) | Err(_) => {
                    let address = self.address;
                    warn!(%address, "the service that receives for this process has ended");
                    self.state = State::Disconnected(now, RETRY);
                    return count;
                }
            }
        }
        BATCH
    }
}

impl Control {
    /// Asks whether another process listens for a service or, with `claim`, to listen. Waits for
    /// the response. Errors: [`io::ErrorKind::AddrInUse`] if another process listens.
    pub(in crate::link) fn ask(&self, service: ServiceId, claim: bool) -> io::Result<()> {
        let ServiceId(service) = service;
        let request = if claim { Request::Claim(service) } else { Request::Query(service) };
        let _uncancelled = Uncancelled::begin(); // others wait for the lock
        let mut last = self.last.lock();
        *last = *last % u32::MAX + 1;
        let end = clock::now().plus(RESPONSE_TIMEOUT);
        ensure(self.send(*last, &request), io::ErrorKind::TimedOut)?;
        let mut bytes = [0; Response::LEN];
        loop {
            match rustix::io::read(&self.responses, &mut bytes[..]) {
                Ok(Response::LEN) => {
                    let response: Option<(u32, Response)> = message::decode(&bytes);
                    match response.ok_or(io::ErrorKind::InvalidData)? {
                        (number, _) if number != *last => {} // to a request that timed out
                        (_, Response::Done) => return Ok(()),
                        (_, _) => return Err(io::ErrorKind::AddrInUse.into()),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    let left = end.since(clock::now());
                    ensure(!left.is_zero(), io::ErrorKind::TimedOut)?;
                    wait(&[self.responses.as_fd()], Some(left))?;
                }
                _ => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    }

    /// Sends a request; 0: no response. False: the pipe is full, or the service has ended.
    pub(super) fn send(&self, number: u32, request: &Request) -> bool {
        let bytes = message::encode::<{ Request::LEN }>(&(number, request));
        without_sigpipe(|| rustix::io::write(&self.requests, &bytes)) == Ok(Request::LEN)
    }
}

struct Waiting {
    listener: Name,
    secret: [u8; 16],
    user: u32,
    accepted: Option<OwnedFd>,
}

impl Waiting {
    fn request(
        directory: &Path,
        address: IpAddr,
        interface: u32,
        wanted: Option<IdPartition>,
    ) -> io::Result<Self> {
        let mut random = [[0; 16]; 2];
        getrandom::fill(random.as_flattened_mut()).map_err(io::Error::other)?;
        let [number, secret] = random;
        let request = JoinRequest::new(number, secret, wanted.map_or(0, IdPartition::get));
        let listener = Name::listen(request.name().as_bytes())?;
        let user = admission::request(directory, address, interface, &request)?;
        Ok(Self { listener, secret, user, accepted: None })
    }

    /// The greeting and the connection, once the service has connected.
    fn poll(&mut self) -> io::Result<Option<(Greeting, State)>> {
        for _ in 0..ACCEPT_BATCH {
            let Some(data) = self.accepted.take() else {
                match self.listener.accept() {
                    // anybody can connect
                    Ok(socket) => self.accepted = socket.of_user(self.user).ok(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(error),
                }
                continue;
            };
            let mut bytes = [0; Greeting::LEN];
            match receive_with(&data, &mut bytes) {
                Ok((Greeting::LEN, descriptors)) => {
                    if let Some(greeting) = message::decode::<Greeting>(&bytes)
                        && greeting.secret == self.secret
                        && let Ok([requests, responses]) = <[OwnedFd; 2]>::try_from(descriptors)
                    {
                        let control = Control { requests, responses, last: Mutex::default() };
                        let state = State::Joined(data, Arc::new(control));
                        return Ok(Some((greeting, state)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accepted = Some(data);
                    return Ok(None);
                }
                Ok(_) | Err(_) => {} // another process of that user
            }
        }
        Ok(None)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.accepted.as_ref().map_or(self.listener.as_fd(), AsFd::as_fd)
    }
}
