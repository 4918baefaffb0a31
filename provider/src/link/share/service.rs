//! The service: receives for clients.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::File,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::IpAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
};

use roce_transport::{
    cm::{ConnRecord, ServiceId},
    share::{Addressee, IdPartition, Requests},
    time::Instant,
};
use rustix::{
    event::epoll,
    net::{SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, sockopt},
    pipe::{PipeFlags, pipe_with},
};
use tracing::{debug, info, warn};

use super::{
    admission::{self, AdmissionFifo},
    message::{Greeting, JoinRequest, Request, Response},
    table::{Place, Table},
};
use crate::{
    bind::BindError,
    cancel::Uncancelled,
    clock,
    link::{
        CHECK_INTERVAL, DatagramRun, Ended,
        arrival::Arrival,
        conn_record, credentials,
        descriptors::send_with,
        epoll::ready,
        kept::{self, Kept},
        message,
        stranger::unix_socket,
    },
    signals::without_sigpipe,
};

/// Descriptors examined per round, and requests per client.
const EVENTS: usize = 16;
const REQUESTS: usize = 8;
/// Most connections of a client whose peers are notified at its end, and most peers.
const MAX_RECORDS: usize = 1024;
const MAX_STATE: usize = 16 << 20;
/// Requested send buffer of a client's socket, in bytes. The system grants less.
const BUFFER: usize = 4 << 20;

/// The part of a link that receives for programs of all users.
pub struct Service {
    directory: PathBuf,
    /// Readable on a request. Event data: a FIFO's number and, in the low byte, the partition of a
    /// client there, or 0.
    pub(in crate::link) epoll: OwnedFd,
    fifos: BTreeMap<u64, (IpAddr, AdmissionFifo)>,
    pub(super) clients: BTreeMap<Place, Client>,
    table: Table,
    /// File with the table for the next service, and the table as last saved.
    saved: (File, Vec<u8>),
    requests: Requests,
    next_fifo: u64,
    look_at: Instant,
    ended: VecDeque<Ended>,
    receive_buffer: usize,
    /// Datagrams sent to clients, and datagrams without room in clients' sockets.
    pub(in crate::link) forwarded: u64,
    pub(in crate::link) lost: u64,
}

pub(super) struct Client {
    user: u32,
    /// Can only send.
    data: OwnedFd,
    requests: OwnedFd,
    responses: OwnedFd,
    /// The last datagram found no room.
    has_lost: bool,
    /// Hosts that have sent this client CM messages.
    peers: BTreeSet<IpAddr>,
    records: BTreeMap<u32, ConnRecord>,
}

impl Service {
    /// Starts the service for a link's addresses and their interfaces' indices. `receive_buffer`:
    /// bytes of the link's sockets.
    ///
    /// # Errors
    /// [`BindError::NoDoor`].
    pub fn new(
        directory: &Path,
        addresses: &[(IpAddr, u32)],
        receive_buffer: usize,
    ) -> Result<Self, BindError> {
        let (address, interface) = addresses.first().copied().unwrap_or(([0; 4].into(), 0));
        let error = |source| BindError::NoDoor { address, source };
        admission::prepare(directory).map_err(error)?;
        let state = match kept::take(Kept::State, address, interface) {
            Some(state) => state.into(),
            None => {
                let state = admission::state_file(directory, address, interface).map_err(error)?;
                kept::keep(Kept::State, &state, address, interface);
                state
            }
        };
        let table = Table::restore(clock::now(), &read(&state));
        let mut this = Self {
            directory: directory.into(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|it| error(it.into()))?,
            fifos: BTreeMap::new(),
            clients: BTreeMap::new(),
            saved: (state, table.save()),
            table,
            requests: Requests::default(),
            next_fifo: 0,
            look_at: Instant::ZERO,
            ended: VecDeque::new(),
            receive_buffer,
            forwarded: 0,
            lost: 0,
        };
        addresses.iter().try_for_each(|&(it, interface)| this.open_admission(it, interface))?;
        Ok(this)
    }

    pub(in crate::link) fn open_admission(
        &mut self,
        address: IpAddr,
        interface: u32,
    ) -> Result<(), BindError> {
        let fifo = AdmissionFifo::new(&self.directory, address, interface).and_then(|fifo| {
            self.watch(&fifo.file, self.next_fifo << 8)?;
            Ok(fifo)
        });
        let fifo = fifo.map_err(|source| BindError::NoDoor { address, source })?;
        self.fifos.insert(self.next_fifo, (address, fifo));
        self.next_fifo += 1;
        Ok(())
    }

    pub(in crate::link) fn close_admission(&mut self, address: IpAddr) {
        let _uncancelled = Uncancelled::begin();
        self.fifos.retain(|_, (other, _)| *other != address);
        self.clients.retain(|(other, _), _| *other != address);
        self.table.forget(address);
    }

    fn watch(&self, descriptor: impl AsFd, data: u64) -> rustix::io::Result<()> {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)
    }

    /// Makes the next [`attend`](Self::attend) look at everything.
    pub const fn look(&mut self) {
        self.look_at = Instant::ZERO;
    }

    pub(in crate::link) fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.table.listener(address, service).is_some()
    }

    /// Next client that ended with connections.
    pub fn poll_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Reads some requests.
    pub fn attend(&mut self, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus(CHECK_INTERVAL);
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let Ok(events) = ready(&self.epoll, &mut events) else { return };
        if events.len() == 0 {
            return;
        }
        let _uncancelled = Uncancelled::begin(); // descriptors may be closed
        for event in events {
            let (number, partition) = (event >> 8, event as u8);
            let Some((address, fifo)) = self.fifos.get_mut(&number) else { continue };
            let address = *address;
            if let Some(partition) = IdPartition::new(partition) {
                if !self.serve(now, (address, partition)) {
                    self.end(now, (address, partition));
                }
                continue;
            }
            for request in fifo.requests() {
                if let Err(error) = self.admit(now, number, address, &request) {
                    debug!(%address, %error, "no process behind a request to join");
                }
            }
        }
        let table = self.table.save();
        if self.saved.1 != table {
            let (file, saved) = &mut self.saved;
            let written = file.write_all_at(&table, 0);
            if let Err(error) = written.and_then(|()| file.set_len(table.len() as u64)) {
                warn!(%error, "the next service will not know the clients of this one");
            }
            *saved = table;
        }
    }

    /// Connects to a client by a socket that can only send, and gives it a partition.
    fn admit(
        &mut self,
        now: Instant,
        fifo: u64,
        address: IpAddr,
        request: &JoinRequest,
    ) -> io::Result<()> {
        let data = unix_socket()?;
        rustix::net::shutdown(&data, Shutdown::Read)?;
        let name = request.name();
        rustix::net::connect(&data, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        let user = credentials::user(&data)?;
        let _ = sockopt::set_socket_send_buffer_size(&data, BUFFER);
        let buffer = sockopt::socket_send_buffer_size(&data)?.min(self.receive_buffer);
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (requests, theirs) = pipe_with(flags)?;
        let (their_responses, responses) = pipe_with(flags)?;
        let wanted = IdPartition::new(request.wanted);
        let partition = self.table.open(now, address, user, wanted);
        let greeting = Greeting {
            secret: request.secret,
            partition: partition.map_or(0, IdPartition::get),
            receive_buffer: u32::try_from(buffer).unwrap_or(u32::MAX),
        };
        let greeting = message::encode::<{ Greeting::LEN }>(&greeting);
        let greeted = send_with(&data, &greeting, &[theirs.as_fd(), their_responses.as_fd()]);
        let Some(partition) = partition else { return greeted };
        let watched = self.watch(&requests, fifo << 8 | u64::from(partition.get()));
        if let Err(error) = greeted.and(watched.map_err(io::Error::from)) {
            self.table.close(now, (address, partition));
            return Err(error);
        }
        info!(%address, user, partition = partition.get(), "a client has come");
        let (peers, records) = (BTreeSet::new(), BTreeMap::new());
        let client = Client { user, data, requests, responses, has_lost: false, peers, records };
        self.clients.insert((address, partition), client);
        Ok(())
    }

    /// Serves a client's requests. False if the client has ended, sends nonsense, or does not read.
    fn serve(&mut self, now: Instant, place @ (address, own): Place) -> bool {
        let Self { clients, table, .. } = self;
        let Some(client) = clients.get_mut(&place) else { return true };
        let mut bytes = [0; REQUESTS * Request::LEN];
        let length = match rustix::io::read(&client.requests, &mut bytes[..]) {
            Ok(length) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
            Err(_) => return false,
        };
        // requests are written whole, and read whole
        let (requests, rest) = bytes[..length].as_chunks::<{ Request::LEN }>();
        let mut serve = |request: &[u8; Request::LEN]| {
            let Some((number, request)) = message::decode::<(u32, _)>(request) else {
                return false;
            };
            let mut response = Response::Done;
            match request {
                Request::Query(service) => response = table.query(now, place, ServiceId(service)),
                Request::Claim(service) => response = table.claim(now, place, ServiceId(service)),
                Request::Release(service) => table.release(place, ServiceId(service)),
                Request::Keep(record) => {
                    // other records are of no connection that the client can have
                    let record = conn_record::decode(&record, own, address);
                    let record = record.filter(|record| client.peers.contains(&record.remote));
                    if client.records.len() < MAX_RECORDS {
                        client.records.extend(record.map(|record| (record.local_id, record)));
                    }
                }
                Request::Erase(local_id) => _ = client.records.remove(&local_id),
            }
            let response = message::encode::<{ Response::LEN }>(&(number, response));
            let write = || rustix::io::write(&client.responses, &response);
            number == 0 || without_sigpipe(write) == Ok(Response::LEN)
        };
        !requests.is_empty() && rest.is_empty() && requests.iter().all(&mut serve)
    }

    fn end(&mut self, now: Instant, place @ (address, partition): Place) {
        let Some(Client { user, records, .. }) = self.clients.remove(&place) else { return };
        info!(%address, user, partition = partition.get(), "a client has ended");
        self.table.close(now, place);
        if !records.is_empty() {
            let records = records.into_values().collect();
            self.ended.push_back(Ended::Here { address, partition, records });
        }
    }

    /// Sends a run's datagrams to their clients and hands over the rest.
    pub fn forward(&mut self, run: &DatagramRun<'_>, sink: &mut dyn FnMut(&DatagramRun<'_>)) {
        if self.clients.is_empty() {
            return sink(run);
        }
        let mut payloads = run.payloads();
        let addressee = Addressee::of(payloads.next().unwrap_or_default());
        if let Addressee::Partition(partition) = addressee
            && payloads.all(|other| Addressee::of(other) == addressee)
        {
            return self.send(Some(partition), run, sink);
        }
        run.for_each(|datagram| {
            let partition = match self.requests.addressee(run.net.src, datagram.bytes) {
                Addressee::Partition(partition) => Some(partition),
                Addressee::Service(service) => self.table.listener(run.net.dst, service),
                Addressee::Unknown => None,
            };
            self.send(partition, &DatagramRun::from(*datagram), sink);
        });
    }

    fn send(
        &mut self,
        partition: Option<IdPartition>,
        run: &DatagramRun<'_>,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
        let client = partition.and_then(|it| self.clients.get_mut(&(run.net.dst, it)));
        let Some(client) = client else { return sink(run) };
        let count = run.payloads().count() as u64;
        if client.send(run) {
            self.forwarded += count;
        } else {
            self.lost += count;
        }
    }
}

opaque_debug!(Service, |it| clients: it.clients.len());

impl Client {
    fn send(&mut self, run: &DatagramRun<'_>) -> bool {
        if is_management(run.bytes) && self.peers.len() < MAX_RECORDS {
            self.peers.insert(run.net.src);
        }
        let Some(header) = Arrival::of(run, self.has_lost) else { return false };
        let header = header.encode();
        let message = [IoSlice::new(&header), IoSlice::new(run.bytes)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut none = SendAncillaryBuffer::default();
        self.has_lost = rustix::net::sendmsg(&self.data, &message, &mut none, flags).is_err();
        !self.has_lost
    }
}

fn read(state: &File) -> Vec<u8> {
    let length = state.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0).min(MAX_STATE)];
    let read = state.read_exact_at(&mut bytes, 0);
    read.map(|()| bytes).unwrap_or_default()
}

/// True if the destination is QP1.
fn is_management(datagram: &[u8]) -> bool {
    datagram.get(5..8) == Some(&[0, 0, 1])
}
