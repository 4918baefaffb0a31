//! Packets to devices of the same host through memory that two processes share, in the place of the
//! network stack.
//!
//! Each address that a link is bound to has a socket in the abstract name space of Unix sockets,
//! which is one per network namespace, as the addresses are. A process that is about to send to an
//! address tries to connect to the socket of that name. If there is one, of a process that is to be
//! [trusted](super::credentials), the sender makes a [ring](super::rings), sends the memory's descriptor, and gets
//! an event descriptor with which it can wake the receiver. Until the answer is there, and wherever
//! there is no such socket, packets take the network stack. The ring carries what the network would:
//! runs of whole packets, ICRC included.
//!
//! By the same socket a process finds the one that has the address that it wants itself, and
//! [shares](address) it.
//!
//! A connection of Unix sockets also shows at once that the other process has ended, however it
//! ended.

mod acquire;
mod address;
mod channel;
mod claim;
mod listener;
mod look;
mod members;
mod outgoing;
mod owner;
mod peer;
mod reaper;
mod record;
mod socket;
mod term;
mod witness;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::{
    cm::{ConnId, ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};
use rustix::event::{EventfdFlags, epoll, eventfd};
use socket2::Socket;

use super::{
    BATCH, Datagram, DatagramRun, Ended, SharingLink,
    rings::{Broken, LONGEST},
    sealed,
};
use crate::cancel::Uncancelled;
use address::SharedAddresses;
use channel::{IncomingChannel, Origin, OutgoingChannel, Ways};
use listener::{FORWARDED, Hello, Listeners, Pending};
pub(super) use members::MakeSocket;
use owner::{Change, HANDOVER, Place};
pub(crate) use reaper::{Left, Members};
use socket::{send_with, watch};
use witness::Witnesses;

/// Time between two looks for processes that come and go, while no thread sleeps on the link.
const LOOK: Duration = Duration::from_millis(1);
/// Time after which runs that found no room are written again; twice as long each time that they
/// find none again, up to the most.
const WRITE_RETRY: Duration = Duration::from_micros(50);
const WRITE_RETRY_MOST: Duration = Duration::from_millis(2);
/// Greatest number of pairs of addresses that are remembered, and of rings from other devices.
const MAX_PAIRS: usize = 1024;

/// Those who may have the addresses of a link besides it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// Nobody.
    None,
    /// Other links of this process. Packets take the network stack.
    InProcess,
    /// Those, and other processes.
    All,
}

/// Devices of this host, and the rings to and from them.
pub(super) struct ShmLink {
    /// Readable when any of the descriptors here is. Its descriptor never changes.
    epoll: OwnedFd,
    /// Wakeup eventfd: other processes write to it to wake this one.
    wakeup: OwnedFd,
    listeners: Listeners,
    outgoing: BTreeMap<(IpAddr, IpAddr), Ways>,
    incoming: Vec<IncomingChannel>,
    sharing: Sharing,
    /// True if all that is sent is what an adapter has built.
    trusted: bool,
    addresses: SharedAddresses,
    witnesses: Witnesses,
    /// News of processes that have ended.
    ended: VecDeque<Ended>,
    /// Connections to the reaper, one for each address. They end when this link does.
    reaper: Vec<OwnedFd>,
    /// Time of the next look for processes that come and go.
    look_at: Instant,
    /// Time from which pairs without a channel may be forgotten.
    sweep_at: Instant,
    /// Number of threads that sleep until the descriptor is readable.
    sleepers: u32,
    /// Time at which runs that found no room are tried again.
    write_at: Option<Instant>,
    /// Time from one attempt to the next.
    write_wait: Duration,
    /// Time of the next look for readers that are stopped.
    check_at: Option<Instant>,
    buffer: Box<[u8]>,
    scratch: Vec<u8>,
    sent_runs: u64,
    /// Number of datagrams that were passed to the owner of an address.
    passed: u64,
}

impl ShmLink {
    /// True if there can be none, because the system gives no memory that processes share.
    pub(super) fn is_refused() -> bool {
        sealed::is_refused()
    }

    pub(super) fn new(sharing: Sharing) -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &wakeup)?;
        Ok(Self {
            epoll,
            wakeup,
            listeners: Listeners::default(),
            outgoing: BTreeMap::new(),
            incoming: Vec::new(),
            sharing,
            trusted: false,
            addresses: SharedAddresses::default(),
            witnesses: Witnesses::default(),
            ended: VecDeque::new(),
            reaper: Vec::new(),
            look_at: Instant::ZERO,
            sweep_at: Instant::ZERO,
            sleepers: 0,
            write_at: None,
            write_wait: WRITE_RETRY,
            check_at: None,
            buffer: vec![0; LONGEST].into(),
            scratch: Vec::new(),
            sent_runs: 0,
            passed: 0,
        })
    }

    /// One without addresses, to [acquire](Self::acquire) one while this one is in use, and to
    /// [absorb](Self::absorb) then.
    pub(super) fn part(&self) -> io::Result<Self> {
        let mut part = Self::new(self.sharing)?;
        (part.epoll, part.wakeup) = (self.epoll.try_clone()?, self.wakeup.try_clone()?);
        part.addresses = self.addresses.part();
        Ok(part)
    }

    /// Takes over the addresses of a [part](Self::part).
    pub(super) fn absorb(&mut self, part: Self) {
        self.listeners.absorb(part.listeners);
        self.addresses.absorb(part.addresses);
        self.reaper.extend(part.reaper);
        for incoming in part.incoming {
            incoming.reader.set_asleep(self.sleepers > 0);
            if !incoming.reader.is_empty() {
                // what came before then has woken nobody
                let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
            }
            self.incoming.push(incoming);
        }
        self.listen_directly();
        self.look_at = Instant::ZERO;
    }

    /// Descriptor that is readable when there is something to do. Runs make it so only while a
    /// thread is [parked](Self::park).
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Declares that all that is sent from now on is, byte for byte, what an adapter has built.
    pub(super) const fn set_trusted(&mut self) {
        self.trusted = true;
    }

    /// Chooses the partition of the numbers that this device has, `first` if it is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_partition(&mut self, first: u8) -> io::Result<Option<IdPartition>> {
        self.addresses.choose_partition(&self.epoll, first)?;
        self.listen_directly();
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
        self.addresses.adopt_partition(&self.epoll, partition)?;
        self.listen_directly();
        for (address, interface) in served {
            self.serve(address, interface);
        }
        Ok(())
    }

    /// Can be found at an address at which the service receives.
    pub(super) fn serve(&mut self, address: IpAddr, interface: u32) {
        let Self { epoll, listeners, addresses, .. } = self;
        if let Some(partition) = addresses.partition() {
            let _ = listeners.listen_directly(epoll, address, interface, partition);
        }
    }

    /// Can be found, at each address that another process receives for, by those that send to this
    /// one. Where another process has the name, all comes by that one that receives.
    fn listen_directly(&mut self) {
        let Self { epoll, listeners, addresses, .. } = self;
        let Some(partition) = addresses.partition() else { return };
        for (address, interface) in addresses.of_others() {
            let _ = listeners.listen_directly(epoll, address, interface, partition);
        }
    }

    /// True if another process reads the UDP socket of this address.
    pub(super) fn is_peer(&self, address: IpAddr) -> bool {
        self.addresses.is_peer(address)
    }

    /// True if it has read what is for a process that has not come to it yet: when this one ends,
    /// nobody else has that.
    pub(super) fn has_waiting(&self) -> bool {
        self.addresses.has_waiting()
    }

    /// Forwards the datagrams of a run that are for other processes, and hands over the rest.
    pub(super) fn forward_run(
        &mut self,
        run: &DatagramRun<'_>,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
        self.addresses.forward_run(&self.epoll, run, sink);
    }

    /// The same for a datagram that has come by a [member socket](Self::poll_member).
    pub(super) fn forward_from_member(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        if !self.is_peer(datagram.net.dst) {
            return self.addresses.forward(&self.epoll, datagram);
        }
        let is_strange = self.addresses.is_strange(datagram);
        if is_strange {
            self.pass_to_owner(now, datagram);
        }
        is_strange
    }

    /// A socket to be read besides the one of its address, whoever owns the address. When it is
    /// readable, this link's descriptor is.
    pub(super) fn poll_member(&mut self) -> Option<(IpAddr, Socket)> {
        self.addresses.poll_member()
    }

    /// Gives an address up.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.listeners.forget(&self.epoll, address);
        let passes = |ends: &(IpAddr, IpAddr)| *ends == (FORWARDED, address);
        self.outgoing.retain(|ends, _| ends.0 != address && !passes(ends));
        self.incoming.retain(|incoming| incoming.dst != address);
        if let Some(shared) = self.addresses.forget(address) {
            shared.leave(&self.epoll);
        }
    }

    /// True if what arrives at this address's UDP socket makes this link's descriptor readable.
    pub(super) fn watches(&self, address: IpAddr) -> bool {
        self.addresses.contains(address)
    }

    /// Time at which it is to be [attended](Self::attend) to although its descriptor is not
    /// readable.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Self { addresses, listeners, witnesses, write_at, check_at, .. } = self;
        let others = [addresses.deadline(), listeners.deadline(), witnesses.deadline()];
        others.into_iter().chain([*write_at, *check_at]).flatten().min()
    }

    /// Does what is due besides receiving: accepts and forgets processes, writes what found no room.
    pub(super) fn attend(&mut self, now: Instant) {
        if self.addresses.begin_round(now) {
            let _uncancelled = Uncancelled::begin(); // descriptors may be closed, here and below
            self.addresses.read_updates();
            self.update_roles(now);
        }
        if self.write_at.is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin();
            self.write_backlogs(now);
        }
        if self.check_at.is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin();
            self.check_readers(now);
        }
        if self.listeners.deadline().is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin();
            self.accept_pending(now);
        }
        self.look_for_the_ended(now);
        if now < self.look_at && self.sleepers == 0 {
            return;
        }
        self.look_at = now.plus(LOOK);
        let (is_news, is_arrival) = socket::news(&self.epoll);
        if is_arrival {
            self.addresses.note_arrival(now);
        }
        if !is_news {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        self.accept_pending(now);
        self.addresses.read_updates();
        self.update_roles(now);
        for (&(src, dst), ways) in &mut self.outgoing {
            ways.update(now, [src, dst], &mut self.witnesses);
        }
        self.incoming.retain_mut(|incoming| {
            incoming.update();
            !incoming.closed || !incoming.reader.is_empty()
        });
        self.look_for_the_ended(now);
    }

    /// Looks, if that is due, for what processes leave that have ended.
    fn look_for_the_ended(&mut self, now: Instant) {
        if self.addresses.looks_at().is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin();
            self.ended.extend(self.addresses.take_left(now));
        }
        if self.witnesses.deadline().is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin(); // closes tables
            let over = self.witnesses.look(now);
            self.ended.extend((!over.is_empty()).then_some(Ended::There(over)));
        }
    }

    /// Writes what found no room.
    fn write_backlogs(&mut self, now: Instant) {
        self.write_at = None;
        self.write_wait = WRITE_RETRY_MOST.min(self.write_wait * 2);
        for ways in self.outgoing.values_mut() {
            for (_, channel) in ways.open() {
                if channel.sender.write_backlog().is_ok() && !channel.sender.wake() {
                    self.write_at = Some(now.plus(self.write_wait));
                }
            }
            ways.close_broken(now);
        }
        self.flush(now);
        if self.write_at.is_none() {
            self.write_wait = WRITE_RETRY;
        }
    }

    /// Accepts processes that ask for a ring or for an address. Those that are refused see that
    /// their connection is closed.
    fn accept_pending(&mut self, now: Instant) {
        for (pending, hello) in self.listeners.accept_pending(now, &self.epoll) {
            if !self.accepts(&pending, &hello) {
                continue;
            }
            match hello {
                Hello::Ring(src, reader) => {
                    // who has asked one of several processes hears of their ends from the address's
                    let shares = !pending.is_direct;
                    let own = self.addresses.partition().map_or(0, IdPartition::get);
                    let claims = self.addresses.claims(pending.dst).filter(|_| shares);
                    let answer: Vec<_> = [self.wakeup.as_fd()].into_iter().chain(claims).collect();
                    if self.incoming.len() < MAX_PAIRS
                        && (pending.is_direct || !self.is_peer(pending.dst))
                        && send_with(&pending.socket, &[own], &answer).is_ok()
                    {
                        reader.set_asleep(self.sleepers > 0);
                        let socket = Arc::new(pending.socket);
                        let origin =
                            if src == FORWARDED { Origin::Peer } else { Origin::Address(src) };
                        self.incoming.push(IncomingChannel::new(
                            origin,
                            pending.dst,
                            Some(socket),
                            reader,
                        ));
                    }
                }
                Hello::Share(_) if pending.is_direct => {}
                Hello::Share(wakeup) => {
                    let _ = self.addresses.accept_peer(pending.dst, pending.socket, wakeup);
                }
            }
        }
    }

    /// False where only this process may share the addresses, and somebody else asks, or asks for what
    /// takes the place of the network stack.
    fn accepts(&self, pending: &Pending, hello: &Hello) -> bool {
        self.sharing != Sharing::InProcess
            || match hello {
                Hello::Ring(src, _) => *src == FORWARDED,
                Hello::Share(_) => super::credentials::process(&pending.socket)
                    .is_ok_and(|id| id == std::process::id()),
            }
    }

    /// Finds a new owner for each address whose owner has ended or is stopped.
    fn update_roles(&mut self, now: Instant) {
        let Self { epoll, wakeup, listeners, addresses, .. } = self;
        let changes = addresses.update_roles(now, &mut Place { epoll, wakeup, listeners });
        let has_changed = !changes.is_empty();
        for (address, change) in changes {
            match change {
                Change::Granted(grant, owner) => {
                    if self.attach_ring(address, grant.ring, owner).is_err() {
                        self.addresses.search(address, now.plus(HANDOVER));
                    }
                }
                Change::Resigned => self.close_rings(address, |origin| origin != Origin::Owner),
            }
        }
        if has_changed {
            self.listen_directly();
        }
    }

    /// Has those who write into rings to an address send elsewhere. What they have written is still read.
    fn close_rings(&mut self, address: IpAddr, is: impl Fn(Origin) -> bool) {
        let rings = self.incoming.iter_mut().filter(|incoming| incoming.dst == address);
        rings.filter(|ring| is(ring.origin)).for_each(IncomingChannel::close);
    }

    /// Wakes the peers of shared addresses, and tries again later what finds no room.
    fn flush(&mut self, now: Instant) {
        if !self.addresses.flush() {
            self.write_at = Some(now.plus(self.write_wait));
        }
    }

    /// True if there are rings from others, each of which has brought something before, and no
    /// thread sleeps.
    pub(super) fn is_settled(&self) -> bool {
        self.sleepers == 0
            && !self.incoming.is_empty()
            && self.incoming.iter().all(|incoming| !incoming.reader.is_unread())
    }

    /// Hands over runs that have arrived, some at a time; returns their number.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) -> usize {
        let mut count = 0;
        let mut broken = false;
        let Self { incoming, buffer, sleepers, addresses, epoll, .. } = self;
        let mut sink = |run: &DatagramRun<'_>| addresses.forward_run(epoll, run, sink);
        for incoming in incoming.iter_mut() {
            for _ in 0..BATCH {
                let reader = &mut incoming.reader;
                let popped = if *sleepers > 0 {
                    reader.pop_for_sleepers(buffer)
                } else {
                    reader.pop(buffer)
                };
                match popped {
                    Ok(Some(header)) => {
                        count += 1;
                        incoming.hand_over(header, buffer, &mut sink);
                    }
                    Ok(None) => break,
                    Err(Broken) => {
                        broken = true;
                        incoming.broken = true;
                        break;
                    }
                }
            }
        }
        if broken {
            let _uncancelled = Uncancelled::begin();
            self.incoming.retain(|incoming| !incoming.broken);
        }
        self.flush(now);
        if self.addresses.has_former_peers() {
            let Self { incoming, addresses, .. } = self;
            addresses.disconnect_peers(|address| {
                let mut closed = incoming.iter().filter(|ring| ring.dst == address && ring.closed);
                closed.any(|ring| !ring.reader.is_empty())
            });
        }
        count
    }

    /// A thread is about to sleep on the descriptors. Returns true if there is nothing to receive.
    pub(super) fn park(&mut self) -> bool {
        self.sleepers += 1;
        let mut quiet = true;
        for incoming in &self.incoming {
            quiet &= incoming.reader.park();
        }
        quiet
    }

    /// A thread that slept on the descriptors is awake again.
    pub(super) fn unpark(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.incoming.iter().for_each(|incoming| incoming.reader.set_asleep(false));
        }
        self.look_at = Instant::ZERO;
    }
}

impl SharingLink for ShmLink {
    fn partition(&self) -> Option<IdPartition> {
        self.addresses.partition()
    }

    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        self.addresses.claim(service, address)
    }

    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.addresses.is_claimed(service, address)
    }

    fn release(&mut self, service: ServiceId, address: IpAddr) {
        self.addresses.release(service, address);
    }

    fn keep_record(&mut self, now: Instant, conn: ConnId, record: &ConnRecord) {
        self.addresses.keep_record(record);
        self.witnesses.keep(conn, record);
        let ends = [record.local, record.remote];
        let has_room = self.outgoing.contains_key(&ends.into()) || self.has_room(now);
        match self.outgoing.get_mut(&ends.into()).map(|ways| &mut ways.main) {
            Some(OutgoingChannel::Open(channel)) => {
                channel.witness.iter_mut().for_each(|witness| witness.watch(conn, record));
                return;
            }
            Some(OutgoingChannel::Requested(_)) => return, // the answer brings the witness
            // a peer on this host can be found by now, and perhaps nothing more is sent to it
            Some(OutgoingChannel::Absent(_) | OutgoingChannel::Served(_)) | None => {}
        }
        if has_room {
            self.request(now, ends, self.addresses.interface(record.local));
        }
    }

    fn discard_record(&mut self, conn: ConnId) {
        let Some(record) = self.witnesses.discard(conn) else { return };
        self.addresses.erase_record(&record);
        let ways = self.outgoing.get_mut(&(record.local, record.remote));
        if let Some(channel) = ways.and_then(|ways| ways.main.open()) {
            channel.witness.iter_mut().for_each(|witness| witness.forget(conn));
        }
    }

    fn poll_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    fn settle(&mut self, address: IpAddr, partition: IdPartition) {
        self.addresses.settle(address, partition);
    }

    fn shared_runs(&self) -> u64 {
        self.sent_runs
    }

    fn forwarded(&self) -> u64 {
        self.addresses.forwarded() + self.passed
    }
}

#[cfg(test)]
mod tests;
