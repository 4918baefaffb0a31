//! Other processes of this host: addresses shared with them, and packets to them through memory
//! instead of the network stack.
//!
//! A process has a socket whose [name](names) holds its address and its partition of the numbers. A
//! process that is about to send to a queue pair tries to connect to the socket of that name. If
//! there is one, and its process is [trusted](super::credentials), the sender makes a
//! [ring](super::rings) and sends the memory's descriptor. The answer is an event descriptor, which
//! wakes the receiver. Until the answer is there, and wherever there is no such socket, packets
//! take the network stack. The ring carries what the network would: runs of whole packets.
//!
//! A socket with the name of an address leads to the processes that have the address already, to
//! [share](address) it.

mod acquire;
mod address;
mod claim;
mod ends;
mod epoll;
mod hello;
mod inbox;
mod listener;
mod look;
mod members;
mod names;
mod owner;
mod paths;
mod reaper;
mod record;
mod words;

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use roce_transport::{
    adapter::Transmit,
    cm::{ConnId, ConnRecord},
    share::IdPartition,
    time::Instant,
};

use super::{DatagramRun, Ended, rings::Outgoing, sealed};
use crate::cancel::Uncancelled;
pub(super) use acquire::{Acquired, Scope, acquire, other_user};
use address::{Addressed, SharedAddresses};
use ends::Ends;
use hello::{Hello, Purpose};
use inbox::Inbox;
use listener::{Listeners, Pending};
pub(super) use members::MakeSocket;
use owner::Change;
use paths::{Destination, Paths};
pub(crate) use reaper::{Left, Members};

/// Time between two looks for processes that come and go, while no thread sleeps on the link.
const LOOK: Duration = Duration::from_millis(1);

/// Other processes of this host, as a link has them.
pub(super) struct Sharing {
    /// Readable when any of the other descriptors here is. Its descriptor never changes.
    epoll: OwnedFd,
    listeners: Listeners,
    pub(super) paths: Paths,
    inbox: Inbox,
    scope: Scope,
    /// True if all that is sent is what an adapter has built.
    trusted: bool,
    pub(super) addresses: SharedAddresses,
    ends: Ends,
    /// News of processes that have ended.
    ended: VecDeque<Ended>,
    /// Connections to the reaper, one for each address. They end when this link does.
    reaper: Vec<OwnedFd>,
    /// Time of the next look for processes that come and go.
    look_at: Instant,
}

impl Sharing {
    /// True if there can be none, because the system gives no memory that processes share.
    pub(super) fn is_refused() -> bool {
        sealed::is_refused()
    }

    pub(super) fn new(scope: Scope) -> io::Result<Self> {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            listeners: Listeners::default(),
            paths: Paths::default(),
            inbox: Inbox::new()?,
            scope,
            trusted: false,
            addresses: SharedAddresses::default(),
            ends: Ends::default(),
            ended: VecDeque::new(),
            reaper: Vec::new(),
            look_at: Instant::ZERO,
        })
    }

    pub(super) const fn scope(&self) -> Scope {
        self.scope
    }

    /// Descriptors, one of which is readable when there is something to do. Runs make one so only
    /// while a thread is [parked](Self::park).
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.inbox.descriptor(), self.epoll.as_fd()]
    }

    /// Declares that all that is sent from now on is, byte for byte, what an adapter has built.
    pub(super) const fn set_trusted(&mut self) {
        self.trusted = true;
    }

    // Addresses.

    /// Adds an address.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has this one's partition there.
    pub(super) fn add(&mut self, acquired: Acquired) -> io::Result<()> {
        let Acquired { address, interface, name, shared, reaper } = acquired;
        let can_be_found = name.is_some() || shared.is_some();
        if let Some(name) = name {
            self.listeners.listen(&self.epoll, address, name)?;
        }
        if let Some(shared) = shared
            && let Err(error) = self.addresses.add(&self.epoll, shared)
        {
            self.forget(address);
            return Err(error);
        }
        self.reaper.extend(reaper);
        if can_be_found && (self.scope == Scope::None || self.addresses.partition().is_some()) {
            self.listen_directly(address, interface);
        }
        self.look_at = Instant::ZERO;
        Ok(())
    }

    /// Chooses the partition of the numbers that this device has, `first` if it is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_partition(&mut self, first: u8) -> io::Result<Option<IdPartition>> {
        self.addresses.choose_partition(&self.epoll, first)?;
        self.listen_everywhere();
        Ok(self.addresses.partition())
    }

    /// Takes the partition that this device has where the service receives. Those that send to it
    /// find it there.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has it at one of the other addresses.
    pub(super) fn adopt_partition(
        &mut self,
        partition: IdPartition,
        served: impl Iterator<Item = (IpAddr, u32)>,
    ) -> io::Result<()> {
        self.addresses.take_partition(&self.epoll, partition)?;
        self.listen_everywhere();
        served.for_each(|(address, interface)| self.listen_directly(address, interface));
        Ok(())
    }

    fn listen_everywhere(&mut self) {
        if self.addresses.partition().is_some() {
            for (address, interface) in self.addresses.all() {
                self.listen_directly(address, interface);
            }
        }
    }

    /// Can be found at an address by those that send to this process. Where another one has the
    /// name, all comes by the network stack.
    pub(super) fn listen_directly(&mut self, address: IpAddr, interface: u32) {
        let partition = self.addresses.partition();
        let _ = self.listeners.listen_directly(&self.epoll, address, interface, partition);
    }

    /// Gives an address up.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.listeners.forget(&self.epoll, address);
        self.paths.forget(address);
        self.inbox.forget(address);
        if let Some(shared) = self.addresses.forget(address) {
            shared.leave(&self.epoll);
        }
    }

    // Connections, and what others leave of theirs.

    /// See [`SharingLink::keep_record`](super::SharingLink::keep_record).
    pub(super) fn keep_record(&mut self, now: Instant, conn: ConnId, record: &ConnRecord) {
        self.addresses.at_mut(record.local).into_iter().for_each(|it| it.keep_record(record));
        self.ends.keep(conn, record);
        // a peer on this host can be found by now, and perhaps nothing is sent to it
        if self.scope != Scope::InProcess {
            let partition = IdPartition::of_id(record.remote_id);
            let destination = Destination { src: record.local, dst: record.remote, partition };
            let interface = self.addresses.interface(record.local);
            self.paths.request(now, &self.epoll, destination, interface);
        }
    }

    /// See [`SharingLink::discard_record`](super::SharingLink::discard_record).
    pub(super) fn discard_record(&mut self, conn: ConnId) {
        if let Some(record) = self.ends.discard(conn)
            && let Some(shared) = self.addresses.at_mut(record.local)
        {
            shared.erase_record(&record);
        }
    }

    /// See [`SharingLink::poll_ended`](super::SharingLink::poll_ended).
    pub(super) fn poll_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    // What is due.

    /// Time at which it is to be [attended](Self::attend) to although its descriptor is not
    /// readable.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Self { addresses, listeners, ends, paths, .. } = self;
        let all = [addresses.deadline(), listeners.deadline(), ends.deadline(), paths.deadline()];
        all.into_iter().flatten().min()
    }

    /// Does what is due besides receiving: accepts and forgets processes, writes what found no
    /// room.
    pub(super) fn attend(&mut self, now: Instant) {
        if self.addresses.begin_round(now) {
            self.update_roles(now);
        }
        self.paths.write_backlogs(now);
        if self.listeners.deadline().is_some_and(|due| due <= now) {
            self.accept_pending(now);
        }
        self.look_for_the_ended(now);
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus(LOOK);
        self.inbox.look();
        let (is_news, is_arrival) = epoll::news(&self.epoll);
        if is_arrival {
            self.addresses.record_arrival(now);
        }
        if !is_news {
            return;
        }
        let _uncancelled = Uncancelled::begin(); // descriptors may be closed
        self.accept_pending(now);
        let (ended, has_peer_ended) = self.paths.update(now);
        for ended in ended {
            self.ends.ask(now, ended, self.addresses.interface(ended.src));
        }
        if has_peer_ended {
            self.addresses.record_end(now);
        }
        self.inbox.update();
        self.update_roles(now);
        self.inbox.drop_ended();
        self.look_for_the_ended(now);
    }

    /// Looks, if that is due, for what processes leave that have ended.
    fn look_for_the_ended(&mut self, now: Instant) {
        let due = [self.addresses.deadline(), self.ends.deadline()];
        if due.into_iter().flatten().all(|due| now < due) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        self.ended.extend(self.addresses.take_left(now));
        let over = self.ends.look(now);
        self.ended.extend((!over.is_empty()).then_some(Ended::There(over)));
    }

    /// Accepts processes that ask for something. Those that are refused see that their connection
    /// is closed.
    fn accept_pending(&mut self, now: Instant) {
        let _uncancelled = Uncancelled::begin();
        for (pending, hello) in self.listeners.accept_pending(now, &self.epoll) {
            // a request that is refused is made again, or not needed
            let _ = self.accept(now, pending, hello);
        }
    }

    fn accept(&mut self, now: Instant, pending: Pending, hello: Hello) -> io::Result<()> {
        let Pending { dst, socket, is_direct, .. } = pending;
        let is_own = || super::credentials::process(&socket).ok() == Some(std::process::id());
        match (hello, is_direct) {
            // only what takes the network stack besides
            (Hello::Ring(Purpose::From(_), _), _) if self.scope == Scope::InProcess => Ok(()),
            (_, _) if self.scope == Scope::InProcess && !is_own() => Ok(()),
            (Hello::Ring(purpose, reader), true) => self.inbox.add(purpose, dst, socket, reader),
            (Hello::Share, false) => self.addresses.grant(dst, &socket),
            (Hello::Here(partition), false) => {
                let owner = self.addresses.at_mut(dst).filter(|shared| shared.is_owner());
                let term = owner.ok_or(io::ErrorKind::PermissionDenied)?.own_term();
                let channel = Outgoing::request(socket, &Purpose::Forward(term).message())?;
                self.paths.add_forward(now, dst, partition, channel);
                self.addresses.steer();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Finds a new owner for each address whose owner has ended or is stopped.
    fn update_roles(&mut self, now: Instant) {
        let _uncancelled = Uncancelled::begin();
        let Self { inbox, addresses, epoll, .. } = self;
        let forwarding = |address, term| inbox.forwarding(address, term);
        let changes = addresses.update_roles(now, epoll, forwarding);
        for (address, change) in changes {
            match change {
                Change::Succeeded => {
                    let Some(shared) = self.addresses.at_mut(address) else { continue };
                    let name = shared.common.name.clone();
                    let _ = self.listeners.listen(&self.epoll, address, name);
                }
                Change::Resigned => {
                    self.listeners.resign(&self.epoll, address);
                    self.paths.resign(address);
                    let shared = self.addresses.at_mut(address);
                    let _ = shared.map(|shared| shared.watch(&self.epoll));
                }
                Change::Met(socket, purpose, reader) => {
                    let _ = self.inbox.add(purpose, address, socket, reader);
                }
            }
        }
    }

    // Packets.

    /// True if there are channels for all datagrams of a run. If there are none, looks for them.
    pub(super) fn reaches(
        &mut self,
        now: Instant,
        bytes: &[u8],
        run: &Transmit,
        interface: u32,
    ) -> bool {
        if self.paths.take(bytes, run) {
            return true;
        }
        if self.scope != Scope::InProcess
            && let Some(destination) = self.paths.missing(now, bytes, run)
        {
            self.paths.request(now, &self.epoll, destination, interface);
        }
        false
    }

    /// True if the receiver of a run looks at ICRCs, or may: it is not sent through a channel.
    pub(super) fn needs_icrc(&self, bytes: &[u8], run: &Transmit) -> bool {
        !(self.trusted && self.paths.take(bytes, run))
    }

    /// Sends runs between two addresses, see [`Paths::send`].
    pub(super) fn send(
        &mut self,
        now: Instant,
        bytes: &[u8],
        runs: &[Transmit],
    ) -> Option<io::Result<usize>> {
        self.paths.send(now, bytes, runs, self.trusted)
    }

    /// Forwards the datagrams of a run that are for other processes, and hands over the rest.
    pub(super) fn forward_run(
        &mut self,
        now: Instant,
        run: &DatagramRun<'_>,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
        let Self { addresses, paths, epoll, .. } = self;
        let address = run.net.dst;
        let interface = addresses.interface(address);
        run.for_each(|datagram| {
            let run = DatagramRun::from(*datagram);
            let is_others = match addresses.addressed(datagram) {
                Addressed::Here => false,
                Addressed::Lost => true,
                Addressed::Other(partition) => {
                    let is_there = || addresses.is_taken(address, partition);
                    paths.forward(now, epoll, (interface, partition), &run, is_there)
                }
            };
            if !is_others {
                sink(&run);
            }
        });
        paths.wake_forwards(now);
    }

    /// See [`Inbox::is_settled`].
    pub(super) fn is_settled(&self) -> bool {
        self.inbox.is_settled()
    }

    /// Hands over runs that have arrived, some at a time; returns their number.
    pub(super) fn receive(&mut self, sink: &mut dyn FnMut(&DatagramRun<'_>)) -> usize {
        self.inbox.receive(sink)
    }

    /// A thread is about to sleep on the descriptors. Returns true if there is nothing to receive.
    pub(super) fn park(&mut self) -> bool {
        self.inbox.park()
    }

    /// A thread that slept on the descriptors is awake again.
    pub(super) fn unpark(&mut self) {
        self.inbox.unpark();
    }

    /// The descriptor may be readable: the next round looks at all there is.
    pub(super) const fn look(&mut self) {
        self.look_at = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests;
