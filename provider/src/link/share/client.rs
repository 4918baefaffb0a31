//! A client: a process that the service receives for, at an address.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use roce_transport::{
    cm::{ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};
use rustix::{io::Errno, net::RecvFlags};
use tracing::{info, warn};

use super::{
    door,
    message::{Answer, Knock, Request},
};
use crate::{
    clock,
    link::{
        BATCH, DatagramRun, arrival::Arrival, conn_record, descriptors::receive_with, name::Name,
    },
    readiness::wait,
    signals::without_sigpipe,
    sync::Mutex,
};

/// Time that the service has to answer.
const ANSWER: Duration = Duration::from_millis(600);
/// Time after which a thread that waits for an answer looks whether another has read it.
const SLICE: Duration = Duration::from_millis(1);
/// Time between two attempts to reach the service, which doubles from one to the next, up to the
/// most.
const RETRY: Duration = Duration::from_millis(2);
const RETRY_MOST: Duration = Duration::from_millis(500);
/// Number of processes that are looked at in one go, where the service is waited for.
const COMING: usize = 16;
/// The longest message of the service: a header, and what a UDP datagram can carry.
const LONGEST: usize = Arrival::LEN + 65_536;
/// Answers that nobody has taken.
const MAX_RESULTS: usize = 64;

/// An address of a device, at which the service receives.
pub(in crate::link) struct Client {
    pub(in crate::link) address: IpAddr,
    pub(in crate::link) interface: u32,
    directory: PathBuf,
    partition: Option<IdPartition>,
    services: BTreeSet<ServiceId>,
    /// Claims that have no answer yet, by the numbers of their requests.
    claims: BTreeMap<u64, ServiceId>,
    /// Its connections, by communication ID.
    records: BTreeMap<u32, [u8; conn_record::LEN]>,
    receive_buffer: usize,
    state: State,
    buffer: Box<[u8]>,
}

enum State {
    Joined(Connection),
    /// The service is waited for until then.
    Knocked(Waiting, Instant),
    /// It has been asked for the partition.
    Opening(Connection, u64, Instant),
    /// There is none. It is looked for at that time, and then after this one.
    Away(Instant, Duration),
}

/// A connection to the service.
struct Connection {
    data: OwnedFd,
    control: Arc<Control>,
}

/// Requests and answers.
pub(in crate::link) struct Control {
    requests: OwnedFd,
    answers: OwnedFd,
    state: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    /// Number of the next request.
    next: u64,
    /// Requests that the pipe has had no room for.
    unsent: VecDeque<Request>,
    /// Numbers of those that are to be answered.
    awaited: VecDeque<u64>,
    results: VecDeque<(u64, Answer)>,
}

/// Where the service is waited for.
struct Waiting {
    listener: Name,
    secret: [u8; 16],
    /// The user of the service.
    user: u32,
    /// A process of that user has come.
    come: Option<OwnedFd>,
}

impl Control {
    /// Asks for something, and returns the number of the request.
    fn request(&self, request: Request) -> u64 {
        let mut asked = self.state.lock();
        let number = asked.next;
        asked.next += 1;
        if request.is_answered() {
            asked.awaited.push_back(number);
        }
        asked.unsent.push_back(request);
        asked.flush(&self.requests);
        number
    }

    /// Reads answers, and sends what is left.
    fn attend(&self) -> io::Result<()> {
        let mut asked = self.state.lock();
        asked.read(&self.answers)?;
        asked.flush(&self.requests);
        Ok(())
    }

    /// The answer to the request with this number.
    fn take(&self, number: u64) -> Option<Answer> {
        let mut asked = self.state.lock();
        let found = asked.results.iter().position(|(other, _)| *other == number)?;
        asked.results.remove(found).map(|(_, answer)| answer)
    }

    /// Asks for something, and waits for the answer.
    fn ask(&self, request: Request) -> io::Result<Answer> {
        let number = self.request(request);
        let end = clock::now().plus(ANSWER);
        loop {
            self.attend()?;
            if let Some(answer) = self.take(number) {
                return Ok(answer);
            }
            let left = end.since(clock::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // another thread may be the one that reads it
            wait(&[self.answers.as_fd()], Some(left.min(SLICE)))?;
        }
    }
}

impl Asked {
    fn flush(&mut self, requests: &OwnedFd) {
        while let Some(request) = self.unsent.front() {
            // whoever does not hear that the service has ended reads it from the answers
            let write = || rustix::io::write(requests, &request.encode());
            if without_sigpipe(write) != Ok(Request::LEN) {
                break;
            }
            self.unsent.pop_front();
        }
    }

    fn read(&mut self, answers: &OwnedFd) -> io::Result<()> {
        loop {
            let mut bytes = [0; Answer::LEN];
            match rustix::io::read(answers, &mut bytes[..]) {
                Ok(Answer::LEN) => {
                    let (Some(number), Some(answer)) =
                        (self.awaited.pop_front(), Answer::decode(&bytes))
                    else {
                        return Err(io::ErrorKind::InvalidData.into());
                    };
                    if self.results.len() == MAX_RESULTS {
                        self.results.pop_front();
                    }
                    self.results.push_back((number, answer));
                }
                Ok(_) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Asks whether another process listens for a service, or, with `claim`, to listen for it. This
/// waits for the answer.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if another does.
pub(in crate::link) fn ask(control: &Control, service: ServiceId, claim: bool) -> io::Result<()> {
    let request = if claim { Request::Claim(service) } else { Request::Query(service) };
    match control.ask(request)? {
        Answer::Done => Ok(()),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl Waiting {
    /// Knocks at the door of an address.
    fn knock(directory: &Path, address: IpAddr, interface: u32) -> io::Result<Self> {
        let mut random = [[0; 16]; 2];
        for bytes in &mut random {
            getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))?;
        }
        let [number, secret] = random;
        let knock = Knock { number, secret };
        let listener = Name::listen(knock.name().as_bytes())?;
        let user = door::knock(directory, address, interface, &knock)?;
        Ok(Self { listener, secret, user, come: None })
    }

    /// The connection, once the service has come.
    fn poll(&mut self) -> io::Result<Option<Connection>> {
        for _ in 0..COMING {
            let Some(socket) = self.come.take() else {
                match self.listener.accept() {
                    // anybody can connect
                    Ok(socket) => self.come = socket.of_user(self.user).ok(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(error) => return Err(error),
                }
                continue;
            };
            let mut secret = [0; 16];
            match receive_with(&socket, &mut secret) {
                Ok((16, mut descriptors)) if secret == self.secret => {
                    let answers = descriptors.pop();
                    let (Some(requests), Some(answers)) = (descriptors.pop(), answers) else {
                        continue;
                    };
                    let control = Control { requests, answers, state: Mutex::default() };
                    return Ok(Some(Connection { data: socket, control: Arc::new(control) }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.come = Some(socket);
                    return Ok(None);
                }
                Ok(_) | Err(_) => {} // another process of that user
            }
        }
        Ok(None)
    }

    /// Readable when there is more to [poll](Self::poll).
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.come.as_ref().map_or(self.listener.as_fd(), AsFd::as_fd)
    }
}

impl Client {
    /// Has the service receive at an address. `None`: there is none that has the address.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if it does not answer.
    pub(in crate::link) fn join(
        directory: &Path,
        address: IpAddr,
        interface: u32,
    ) -> io::Result<Option<Self>> {
        let end = clock::now().plus(ANSWER);
        let mut waiting = loop {
            match Waiting::knock(directory, address, interface) {
                Ok(waiting) => break waiting,
                // others knock as well
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < end => {
                    thread::sleep(RETRY);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => return Ok(None),
            }
        };
        let connection = loop {
            if let Some(connection) = waiting.poll()? {
                break connection;
            }
            let left = end.since(clock::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            wait(&[waiting.descriptor()], Some(left))?;
        };
        Ok(Some(Self {
            address,
            interface,
            directory: directory.into(),
            partition: None,
            services: BTreeSet::new(),
            claims: BTreeMap::new(),
            records: BTreeMap::new(),
            receive_buffer: usize::MAX,
            state: State::Joined(connection),
            buffer: vec![0; LONGEST].into(),
        }))
    }

    /// Has a partition: that which the device has elsewhere, or any. This waits for the answer.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process has it, or the user as many as it can.
    pub(in crate::link) fn open(&mut self, wanted: Option<IdPartition>) -> io::Result<IdPartition> {
        let control = self.control().ok_or(io::ErrorKind::NotConnected)?;
        match control.ask(Request::Open(wanted))? {
            Answer::Opened(partition, bytes) => {
                self.partition = Some(partition);
                self.receive_buffer = bytes as usize;
                Ok(partition)
            }
            _ => Err(io::ErrorKind::AddrInUse.into()),
        }
    }

    /// What requests go by, while there is a service.
    pub(in crate::link) fn control(&self) -> Option<Arc<Control>> {
        match &self.state {
            State::Joined(connection) => Some(connection.control.clone()),
            _ => None,
        }
    }

    /// Readable when something has arrived, while there is a service or one is waited for.
    pub(in crate::link) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.state {
            State::Joined(Connection { data, control })
            | State::Opening(Connection { data, control }, ..) => {
                vec![data.as_fd(), control.answers.as_fd()]
            }
            State::Knocked(waiting, _) => vec![waiting.descriptor()],
            State::Away(..) => Vec::new(),
        }
    }

    /// Bytes that the system keeps before they are read.
    pub(in crate::link) const fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    #[cfg(test)]
    pub(super) fn write_for_test(&self, bytes: &[u8]) {
        let control = self.control().unwrap();
        rustix::io::write(&control.requests, bytes).unwrap();
    }

    /// Listens for a service. What the service has granted already, when it was [asked](ask), it
    /// grants again.
    pub(in crate::link) fn claim(&mut self, service: ServiceId) {
        if self.services.insert(service)
            && let Some(control) = self.control()
        {
            self.claims.insert(control.request(Request::Claim(service)), service);
        }
    }

    /// Listens for it no more.
    pub(in crate::link) fn release(&mut self, service: ServiceId) {
        if self.services.remove(&service) {
            self.tell(Request::Release(service));
        }
    }

    /// Has the peer of a connection told when this process ends.
    pub(in crate::link) fn keep_record(&mut self, record: &ConnRecord) {
        let bytes = conn_record::encode(record);
        self.records.insert(record.local_id, bytes);
        self.tell(Request::Keep(bytes));
    }

    /// Has it told no more.
    pub(in crate::link) fn erase_record(&mut self, local_id: u32) {
        if self.records.remove(&local_id).is_some() {
            self.tell(Request::Erase(local_id));
        }
    }

    fn tell(&self, request: Request) {
        if let Some(control) = self.control() {
            control.request(request);
        }
    }

    /// Time of the next [update](Self::update) although nothing arrives.
    pub(in crate::link) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Joined(_) => None,
            State::Knocked(_, due) | State::Opening(_, _, due) | State::Away(due, _) => Some(due),
        }
    }

    /// True if it may have something to [do](Self::update).
    pub(in crate::link) fn is_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Joined(_) | State::Knocked(..) | State::Opening(..))
            || self.deadline().is_some_and(|due| due <= now)
    }

    /// Hears answers. Without a service, goes on to find one. Returns true if
    /// [`descriptors`](Self::descriptors) are others now.
    pub(in crate::link) fn update(&mut self, now: Instant) -> bool {
        let was = mem::discriminant(&self.state);
        let later = State::Away(now.plus(RETRY_MOST), RETRY_MOST);
        self.state = match mem::replace(&mut self.state, later) {
            State::Joined(connection) => self.hear(now, connection),
            State::Away(due, retry) if due <= now => {
                match Waiting::knock(&self.directory, self.address, self.interface) {
                    Ok(waiting) => State::Knocked(waiting, now.plus(ANSWER)),
                    Err(_) => State::Away(now.plus(retry), RETRY_MOST.min(retry * 2)),
                }
            }
            State::Knocked(mut waiting, until) => match waiting.poll() {
                Ok(Some(connection)) => {
                    let number = connection.control.request(Request::Open(self.partition));
                    State::Opening(connection, number, now.plus(ANSWER))
                }
                Ok(None) if now < until => State::Knocked(waiting, until),
                Ok(None) | Err(_) => State::Away(now.plus(RETRY), RETRY),
            },
            State::Opening(connection, number, until) => {
                let is_there = connection.control.attend().is_ok();
                match connection.control.take(number) {
                    Some(Answer::Opened(_, bytes)) => self.rejoin(connection, bytes as usize),
                    Some(_) => {
                        warn!(address = %self.address, "others have this process's numbers");
                        State::Away(now.plus(RETRY_MOST), RETRY_MOST)
                    }
                    None if is_there && now < until => State::Opening(connection, number, until),
                    None => State::Away(now.plus(RETRY), RETRY),
                }
            }
            away @ State::Away(..) => away,
        };
        mem::discriminant(&self.state) != was || matches!(self.state, State::Knocked(..))
    }

    /// Reads what the service answers.
    fn hear(&mut self, now: Instant, connection: Connection) -> State {
        if connection.control.attend().is_err() {
            warn!(address = %self.address, "the service that receives for this process has ended");
            self.claims.clear();
            return State::Away(now.plus(RETRY), RETRY);
        }
        let address = self.address;
        self.claims.retain(|number, service| match connection.control.take(*number) {
            Some(Answer::Done) => false,
            // of two that begin at the same time, one was first
            Some(_) => {
                warn!(%address, ?service, "another process listens for the same");
                false
            }
            None => true,
        });
        State::Joined(connection)
    }

    /// Tells the next service what the one before knew.
    fn rejoin(&mut self, connection: Connection, receive_buffer: usize) -> State {
        info!(address = %self.address, "the service receives for this process again");
        self.receive_buffer = receive_buffer;
        for service in &self.services {
            self.claims.insert(connection.control.request(Request::Claim(*service)), *service);
        }
        for record in self.records.values() {
            connection.control.request(Request::Keep(*record));
        }
        State::Joined(connection)
    }

    /// Hands over runs that have arrived, some at a time; returns their number.
    pub(in crate::link) fn receive(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) -> usize {
        let State::Joined(Connection { data, .. }) = &self.state else { return 0 };
        let mut count = 0;
        while count < BATCH {
            match rustix::net::recv(data, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {}
                Ok((_, length)) => {
                    if let Some((header, bytes)) = self.buffer[..length].split_first_chunk() {
                        Arrival::decode(header).hand_over(self.address, bytes, sink);
                    }
                    count += 1;
                    continue;
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => {}
            }
            self.state = State::Away(now, RETRY);
            warn!(address = %self.address, "the service that receives for this process has ended");
            self.claims.clear();
            break;
        }
        count
    }
}
