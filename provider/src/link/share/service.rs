//! The service: a link that receives for clients as well.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    fs::File,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::IpAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    cm::{ConnId, ConnRecord, ServiceId},
    ids::Qpn,
    share::{Addressee, IdPartition, Requests},
    time::Instant,
};
use rustix::{
    event::{Timespec, epoll},
    net::{SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, sockopt},
    pipe::{PipeFlags, pipe_with},
};
use tracing::{debug, info, warn};

use super::{
    door::{self, Door},
    message::{Answer, Knock, Request},
    table::{OWN, Table},
};
use crate::{
    bind::BindError,
    cancel::Uncancelled,
    clock,
    link::{
        AddressSetLink, Datagram, DatagramRun, Ended, Link, MulticastLink, Preparation, Prepared,
        SharedRuns, SharingLink,
        arrival::Arrival,
        conn_record,
        descriptors::send_with,
        kept::{self, Kept},
        stranger::unix_socket,
    },
    signals::without_sigpipe,
};

/// Time between two looks at doors and requests, while no thread sleeps on the link.
const LOOK: Duration = Duration::from_millis(1);
/// Number of descriptors that are looked at in one go, and of requests of a client.
const EVENTS: usize = 16;
const REQUESTS: usize = 8;
/// Time that a client has to ask for a partition, and number of clients that have not yet: of a
/// user, and of all. One more takes the place of the oldest.
const SILENCE: Duration = Duration::from_secs(1);
const MAX_SILENT_OF_USER: usize = 4;
const MAX_SILENT: usize = 64;
/// Connections of a client whose peers are told when it ends, and hosts that they may be with.
const MAX_RECORDS: usize = 1024;
/// Bytes of a saved table.
const MAX_STATE: usize = 16 << 20;
/// Size of the buffer of a client's socket that is asked for. The system grants less.
const BUFFER: usize = 4 << 20;

/// A link that receives for the programs of all users of this host as well.
pub struct ShareLink {
    /// Its doors are gone before the sockets are.
    clients: Clients,
    inner: Box<dyn Link>,
}

/// Clients and their doors.
struct Clients {
    directory: PathBuf,
    saved: SavedTable,
    /// Readable when there is a knock or a request.
    epoll: OwnedFd,
    /// By their numbers in the epoll.
    doors: BTreeMap<u64, (IpAddr, Door)>,
    clients: BTreeMap<u64, Client>,
    /// Clients by address and partition.
    by_number: BTreeMap<(IpAddr, IdPartition), u64>,
    table: Table,
    requests: Requests,
    /// Number of the next client, or door in the epoll.
    next: u64,
    look_at: Instant,
    ended: VecDeque<Ended>,
    receive_buffer: usize,
    forwarded: u64,
    lost: u64,
}

/// The table as it was saved last, where the next service finds it.
struct SavedTable {
    file: File,
    bytes: Vec<u8>,
}

impl SavedTable {
    fn update(&mut self, table: &Table) {
        let table = table.save();
        if self.bytes == table {
            return;
        }
        let saved = self.file.write_all_at(&table, 0);
        if let Err(error) = saved.and_then(|()| self.file.set_len(table.len() as u64)) {
            warn!(%error, "the next service will not know the clients of this one");
        }
        self.bytes = table;
    }
}

/// A process that this one receives for, at an address.
struct Client {
    address: IpAddr,
    user: u32,
    /// It cannot receive, only send.
    data: OwnedFd,
    requests: OwnedFd,
    answers: OwnedFd,
    /// `None`: it has not asked for one yet.
    partition: Option<IdPartition>,
    since: Instant,
    /// Something found no room in its socket.
    has_lost: bool,
    /// Hosts that have sent it messages of connection management.
    peers: BTreeSet<IpAddr>,
    /// Its connections, by communication ID.
    records: BTreeMap<u32, ConnRecord>,
}

impl ShareLink {
    /// The same link, at whose addresses clients find this process. `addresses`: with the indices
    /// of their interfaces.
    ///
    /// # Errors
    /// [`BindError::NoDoor`].
    pub fn new(
        inner: Box<dyn Link>,
        directory: &Path,
        addresses: &[(IpAddr, u32)],
    ) -> Result<Self, BindError> {
        let first = addresses.first().copied().unwrap_or((IpAddr::from([0; 4]), 0));
        let error = |source| BindError::NoDoor { address: first.0, source };
        door::prepare(directory).map_err(error)?;
        let state = match kept::take(Kept::State, first.0, first.1) {
            Some(state) => state.into(),
            None => {
                let state = door::state_file(directory, first.0, first.1).map_err(error)?;
                kept::keep(Kept::State, &state, first.0, first.1);
                state
            }
        };
        let table = Table::restore(clock::now(), &read(&state));
        let clients = Clients {
            directory: directory.into(),
            saved: SavedTable { file: state, bytes: table.save() },
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|it| error(it.into()))?,
            doors: BTreeMap::new(),
            clients: BTreeMap::new(),
            by_number: BTreeMap::new(),
            table,
            requests: Requests::default(),
            next: 0,
            look_at: Instant::ZERO,
            ended: VecDeque::new(),
            receive_buffer: inner.receive_buffer().unwrap_or(usize::MAX),
            forwarded: 0,
            lost: 0,
        };
        let mut this = Self { clients, inner };
        let own = this.inner.addresses();
        for &(address, interface) in addresses.iter().filter(|(address, _)| own.contains(address)) {
            this.clients.open_door(address, interface)?;
        }
        Ok(this)
    }
}

#[cfg(test)]
impl ShareLink {
    pub(super) fn forward_for_test(
        &mut self,
        run: &DatagramRun<'_>,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
        self.clients.forward(run, sink);
    }
}

impl Clients {
    /// Lets clients come to an address.
    fn open_door(&mut self, address: IpAddr, interface: u32) -> Result<(), BindError> {
        let door = Door::new(&self.directory, address, interface).and_then(|door| {
            let data = epoll::EventData::new_u64(self.next);
            epoll::add(&self.epoll, &door, data, epoll::EventFlags::IN)?;
            Ok(door)
        });
        let door = door.map_err(|source| BindError::NoDoor { address, source })?;
        self.doors.insert(self.next, (address, door));
        self.next += 1;
        Ok(())
    }

    /// Lets nobody come to an address any more.
    fn close_door(&mut self, address: IpAddr) {
        self.doors.retain(|_, (other, _)| *other != address);
        self.clients.retain(|_, client| client.address != address);
        self.by_number.retain(|(other, _), _| *other != address);
        self.table.forget(address);
    }

    /// Hears knocks and requests, some at a time.
    fn attend(&mut self, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus(LOOK);
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default()))
        else {
            return;
        };
        if events.is_empty() && self.silent_until().is_none_or(|until| now < until) {
            return;
        }
        let _uncancelled = Uncancelled::begin(); // descriptors may be closed
        for event in events {
            let number = event.data.u64();
            if let Some((address, door)) = self.doors.get_mut(&number) {
                let (address, knocks) = (*address, door.knocks());
                knocks.into_iter().for_each(|knock| self.admit(now, address, &knock));
            } else if !self.serve(now, number) {
                self.end(now, number);
            }
        }
        let is_silent =
            |client: &Client| client.partition.is_none() && now.since(client.since) >= SILENCE;
        let silent = self.clients.iter().filter(|(_, client)| is_silent(client));
        let silent: Vec<_> = silent.map(|(number, _)| *number).collect();
        silent.into_iter().for_each(|number| self.end(now, number));
        self.saved.update(&self.table);
    }

    /// Time at which a client has been silent for too long.
    fn silent_until(&self) -> Option<Instant> {
        let silent = self.clients.values().filter(|client| client.partition.is_none());
        silent.map(|client| client.since.plus(SILENCE)).min()
    }

    /// Connects to a process that has knocked.
    fn admit(&mut self, now: Instant, address: IpAddr, knock: &Knock) {
        let client = match Client::connect(now, address, knock) {
            Ok(client) => client,
            Err(error) => return debug!(%address, %error, "a knock of nobody"),
        };
        let silent = self.clients.iter().filter(|(_, other)| other.partition.is_none());
        let own = silent.clone().filter(|(_, other)| other.user == client.user);
        let oldest = if own.clone().count() >= MAX_SILENT_OF_USER {
            own.clone().next()
        } else {
            silent.clone().next().filter(|_| silent.count() >= MAX_SILENT)
        };
        if let Some((&number, _)) = oldest {
            self.end(now, number);
        }
        let data = epoll::EventData::new_u64(self.next);
        if epoll::add(&self.epoll, &client.requests, data, epoll::EventFlags::IN).is_ok() {
            self.clients.insert(self.next, client);
            self.next += 1;
        }
    }

    /// Does what a client asks for. Returns false if it has ended, makes no sense, or does not
    /// read.
    fn serve(&mut self, now: Instant, number: u64) -> bool {
        let Some(client) = self.clients.get_mut(&number) else { return true };
        let mut bytes = [0; REQUESTS * Request::LEN];
        let length = match rustix::io::read(&client.requests, &mut bytes[..]) {
            Ok(length) => length,
            Err(error) => {
                return matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR);
            }
        };
        // what is written in one go is read in one go
        let (requests, rest) = bytes[..length].as_chunks();
        if requests.is_empty() || !rest.is_empty() {
            return false;
        }
        requests.iter().all(|request| {
            let Some(request) = Request::decode(request) else { return false };
            let Some(client) = self.clients.get_mut(&number) else { return false };
            let answer = match (request, client.partition) {
                (Request::Open(wanted), None) => {
                    let opened = self.table.open(now, client.address, client.user, wanted);
                    if let Ok(partition) = opened {
                        let (address, user) = (client.address, client.user);
                        info!(%address, user, partition = partition.get(), "a client has come");
                        client.partition = opened.ok();
                        self.by_number.insert((address, partition), number);
                    }
                    let bytes = client.receive_buffer().min(self.receive_buffer);
                    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                    opened.map_or_else(|refusal| refusal, |own| Answer::Opened(own, bytes))
                }
                (Request::Query(service), Some(own)) => {
                    self.table.query(now, client.address, own, service)
                }
                (Request::Claim(service), Some(own)) => {
                    self.table.claim(now, client.address, own, service)
                }
                (Request::Release(service), Some(own)) => {
                    self.table.release(client.address, own, service);
                    return true;
                }
                (Request::Keep(record), Some(own)) => {
                    // others are of no connection that it can have
                    let record = conn_record::decode(&record, own, client.address);
                    let record = record.filter(|record| client.peers.contains(&record.remote));
                    if client.records.len() < MAX_RECORDS {
                        client.records.extend(record.map(|record| (record.local_id, record)));
                    }
                    return true;
                }
                (Request::Erase(local_id), Some(_)) => {
                    client.records.remove(&local_id);
                    return true;
                }
                (Request::Open(_), Some(_)) | (_, None) => return false,
            };
            client.answer(answer)
        })
    }

    /// A client has ended.
    fn end(&mut self, now: Instant, number: u64) {
        let Some(client) = self.clients.remove(&number) else { return };
        let Client { address, user, partition: Some(partition), records, .. } = client else {
            return;
        };
        info!(%address, user, partition = partition.get(), "a client has ended");
        self.by_number.remove(&(address, partition));
        self.table.close(now, address, partition);
        if !records.is_empty() {
            let records = records.into_values().collect();
            self.ended.push_back(Ended::Here { address, partition, records });
        }
    }

    /// Sends the datagrams of a run to the clients that they are for, and hands over the rest.
    fn forward(&mut self, run: &DatagramRun<'_>, sink: &mut dyn FnMut(&DatagramRun<'_>)) {
        if self.by_number.is_empty() {
            return sink(run);
        }
        let mut payloads = run.payloads();
        let first = payloads.next().unwrap_or_default();
        let addressee = Addressee::of(first);
        if let Addressee::Partition(partition) = addressee
            && payloads.all(|other| Addressee::of(other) == addressee)
        {
            if !self.send(Some(partition), run) {
                sink(run);
            }
            return;
        }
        run.for_each(|datagram| {
            let partition = match self.requests.addressee(run.net.src, datagram.bytes) {
                Addressee::Partition(partition) => Some(partition),
                Addressee::Service(service) => self.table.listener(run.net.dst, service),
                Addressee::Unknown => None,
            };
            let run = DatagramRun::from(*datagram);
            if !self.send(partition, &run) {
                sink(&run);
            }
        });
    }

    /// Sends a run to the client that has a partition. Returns false if none has.
    fn send(&mut self, partition: Option<IdPartition>, run: &DatagramRun<'_>) -> bool {
        let address = run.net.dst;
        let number = partition.and_then(|partition| self.by_number.get(&(address, partition)));
        let Some(client) = number.and_then(|number| self.clients.get_mut(number)) else {
            return false;
        };
        let sent = client.send(run);
        self.forwarded += sent;
        self.lost += run.payloads().count() as u64 - sent;
        true
    }
}

impl Client {
    /// Connects to the process that has knocked, by a socket that can only send, and gives it the
    /// ends of pipes.
    fn connect(now: Instant, address: IpAddr, knock: &Knock) -> io::Result<Self> {
        let data = unix_socket()?;
        rustix::net::shutdown(&data, Shutdown::Read)?;
        rustix::net::connect(&data, &SocketAddrUnix::new_abstract_name(knock.name().as_bytes())?)?;
        let user = sockopt::socket_peercred(&data)?.uid.as_raw();
        let _ = sockopt::set_socket_send_buffer_size(&data, BUFFER);
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (requests, theirs) = pipe_with(flags)?;
        let (their_answers, answers) = pipe_with(flags)?;
        send_with(&data, &knock.secret, &[theirs.as_fd(), their_answers.as_fd()])?;
        let (peers, records) = (BTreeSet::new(), BTreeMap::new());
        let (partition, since, has_lost) = (None, now, false);
        Ok(Self {
            address,
            user,
            data,
            requests,
            answers,
            partition,
            since,
            has_lost,
            peers,
            records,
        })
    }

    /// Bytes that the system keeps for it before they are read.
    fn receive_buffer(&self) -> usize {
        sockopt::socket_send_buffer_size(&self.data).unwrap_or(0)
    }

    /// Answers it. Returns false if it reads nothing.
    fn answer(&self, answer: Answer) -> bool {
        let write = || rustix::io::write(&self.answers, &answer.encode());
        without_sigpipe(write) == Ok(Answer::LEN)
    }

    /// Sends it a run, and returns the number of datagrams that found room.
    fn send(&mut self, run: &DatagramRun<'_>) -> u64 {
        let is_management = is_management(run.bytes);
        if is_management && self.peers.len() < MAX_RECORDS {
            self.peers.insert(run.net.src);
        }
        let Some(header) = Arrival::of(run, self.has_lost) else { return 0 };
        let header = header.encode();
        let message = [IoSlice::new(&header), IoSlice::new(run.bytes)];
        let sent =
            rustix::net::sendmsg(&self.data, &message, &mut SendAncillaryBuffer::default(), SEND);
        self.has_lost = sent.is_err();
        if sent.is_ok() { run.payloads().count() as u64 } else { 0 }
    }
}

/// What is in a file, if it is no longer than a table can be.
fn read(state: &File) -> Vec<u8> {
    let length = state.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0).min(MAX_STATE)];
    let read = state.read_exact_at(&mut bytes, 0);
    read.map(|()| bytes).unwrap_or_default()
}

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// True if a datagram is for the queue pair of connection management.
fn is_management(datagram: &[u8]) -> bool {
    let qpn = datagram.get(5..8).map(|qpn| u32::from_be_bytes([0, qpn[0], qpn[1], qpn[2]]));
    qpn == Some(Qpn::GSI.get())
}

impl fmt::Debug for ShareLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareLink").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Link for ShareLink {
    fn addresses(&self) -> Vec<IpAddr> {
        self.inner.addresses()
    }

    fn poll_addresses(&mut self) -> bool {
        self.inner.poll_addresses()
    }

    fn limits(&self) -> TransmitLimits {
        self.inner.limits()
    }

    fn source_port(&self) -> SourcePort {
        self.inner.source_port()
    }

    fn flow_ports(&self, address: IpAddr) -> Vec<u16> {
        self.inner.flow_ports(address)
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        self.inner.send(now, bytes, runs)
    }

    fn blocked(&self) -> Option<BorrowedFd<'_>> {
        self.inner.blocked()
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        self.receive_runs(now, &mut |run| run.for_each(&mut *sink))
    }

    fn receive_runs(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) -> io::Result<usize> {
        let Self { clients, inner } = self;
        clients.attend(now);
        inner.receive_runs(now, &mut |run| clients.forward(run, sink))
    }

    fn receive_buffer(&self) -> Option<usize> {
        self.inner.receive_buffer()
    }

    fn socket_drops(&self) -> u64 {
        self.inner.socket_drops() + self.clients.lost
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut descriptors = self.inner.descriptors();
        descriptors.push(self.clients.epoll.as_fd());
        descriptors
    }

    fn deadline(&self) -> Option<Instant> {
        self.inner.deadline().into_iter().chain(self.clients.silent_until()).min()
    }

    fn park(&mut self) -> bool {
        self.inner.park()
    }

    fn unpark(&mut self) {
        self.inner.unpark();
        self.look();
    }

    fn look(&mut self) {
        self.clients.look_at = Instant::ZERO;
        self.inner.look();
    }

    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        self.inner.multicast()
    }

    fn sharing(&mut self) -> Option<&mut dyn SharingLink> {
        Some(self)
    }

    fn address_set(&mut self) -> Option<&mut dyn AddressSetLink> {
        self.inner.address_set()?;
        Some(self)
    }
}

impl SharingLink for ShareLink {
    fn partition(&self) -> Option<IdPartition> {
        IdPartition::new(OWN)
    }

    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        if self.is_claimed(service, address) {
            Err(io::ErrorKind::AddrInUse.into())
        } else {
            Ok(())
        }
    }

    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.clients.table.listener(address, service).is_some()
    }

    fn release(&mut self, _: ServiceId, _: IpAddr) {}

    fn keep_record(&mut self, _: Instant, _: ConnId, _: &ConnRecord) {}

    fn discard_record(&mut self, _: ConnId) {}

    fn poll_ended(&mut self) -> Option<Ended> {
        self.clients.ended.pop_front()
    }

    fn settle(&mut self, _: IpAddr, _: IdPartition) {}

    fn shared_runs(&self) -> SharedRuns {
        SharedRuns::default()
    }

    fn forwarded(&self) -> u64 {
        self.clients.forwarded
    }
}

/// An address that is added, and the index of its interface.
struct NewAddress(Prepared, u32);

impl AddressSetLink for ShareLink {
    fn prepare_address(&mut self, address: IpAddr, interface: u32) -> Preparation<BindError> {
        let inner = self.inner.address_set();
        let Some(prepare) = inner.map(|inner| inner.prepare_address(address, interface)) else {
            return Box::new(move || Err(BindError::NotLocal(address)));
        };
        Box::new(move || Ok(Box::new(NewAddress(prepare()?, interface))))
    }

    fn add_address(&mut self, address: IpAddr, prepared: Prepared) -> Result<(), BindError> {
        let Ok(new) = prepared.downcast() else { return Err(BindError::NotLocal(address)) };
        let NewAddress(prepared, interface) = *new;
        let Some(inner) = self.inner.address_set() else {
            return Err(BindError::NotLocal(address));
        };
        inner.add_address(address, prepared)?;
        self.clients.open_door(address, interface)
    }

    fn remove_address(&mut self, address: IpAddr) {
        let _uncancelled = Uncancelled::begin();
        self.clients.close_door(address);
        if let Some(inner) = self.inner.address_set() {
            inner.remove_address(address);
        }
    }
}
