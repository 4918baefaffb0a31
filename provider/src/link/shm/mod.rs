//! The short way to a device of the same host: memory that two processes share, in the place of the
//! network stack.
//!
//! Each address that a link is bound to has a socket in the abstract name space of Unix sockets,
//! which is one per network namespace, as the addresses are. Who is about to send to an address
//! looks whether there is one of that name. If there is, and it belongs to the same user, the
//! sender makes a [ring](ring), sends the memory's descriptor, and gets an event descriptor with
//! which it can wake the receiver. Until the answer is there, and wherever there is no such socket,
//! packets take the network stack. The ring carries what the network would: runs of whole packets,
//! ICRC included.
//!
//! By the same socket a process finds whoever has the address that it wants itself, and
//! [shares](addresses) it.
//!
//! A connection of Unix sockets also tells at once when the other process ends, however it ends.

mod address;
mod claim;
mod ring;
mod sender;
mod socket;

use std::{
    collections::BTreeMap,
    io,
    mem::{self, MaybeUninit},
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use roce_transport::{
    adapter::Transmit, addr::ROCE_UDP_PORT, cm::ServiceId, share::IdPartition, time::Instant,
};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    net::SocketFlags,
};
use socket2::Socket;

use super::{BATCH, Datagram, DatagramMeta, SharingLink};
use crate::{bind::BindError, readiness::wait};
use address::{ForwardHeader, Grant, Role, SharedAddresses};
use ring::{Broken, LONGEST, Reader, RunHeader, Writer};
use sender::ShmSender;
use socket::{connect, is_over, is_same_user, mapped, receive_with, send_with, watch};

/// How often a link that nobody sleeps on looks whether others come or go.
const LOOK: Duration = Duration::from_millis(1);
/// How long nobody asks again whether an address has a socket by now.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How soon it is tried again to write what found no room.
const WRITE_AGAIN: Duration = Duration::from_micros(50);
/// Pairs of addresses that are kept in mind.
const MOST: usize = 1024;
/// Who has connected and not yet said what for.
const MAX_PENDING: usize = 64;
/// How long the host of an address has time to let in a peer.
const OWNER_ANSWERS: Duration = Duration::from_secs(1);
/// How often it is tried to have an address while it passes from one process to another, and how
/// soon again.
const HANDOVER_TRIES: usize = 10;
const HANDOVER: Duration = Duration::from_millis(2);

/// First in what one says who connects; its last part changes with everything about the ring.
const HELLO_RING: [u8; 8] = *b"roce\0\0\0\x02";
const HELLO_RING_LEN: usize = HELLO_RING.len() + 16;
/// What one says who wants to share the address.
const HELLO_SHARE: [u8; 8] = *b"room\0\0\0\x02";

/// Devices of this host, and the rings to and from them.
pub(super) struct ShmLink {
    /// Readable when any of the descriptors here is. Its descriptor never changes.
    epoll: OwnedFd,
    /// Written to by others to wake this side.
    wakeup: OwnedFd,
    listeners: Vec<Listener>,
    pending: Vec<Pending>,
    outgoing: BTreeMap<(IpAddr, IpAddr), Outgoing>,
    incoming: Vec<Incoming>,
    /// Whether addresses may be shared.
    shares: bool,
    /// Whether all that is sent is what an adapter has built.
    trusted: bool,
    addresses: SharedAddresses,
    look_at: Instant,
    /// When pairs without a short way may be forgotten next.
    sweep_at: Instant,
    /// Who sleeps until the descriptor is readable.
    sleepers: u32,
    /// When the runs that found no room are tried again.
    write_at: Option<Instant>,
    buffer: Box<[u8]>,
    sent_runs: u64,
}

struct Listener {
    address: IpAddr,
    socket: OwnedFd,
}

struct Pending {
    dst: IpAddr,
    socket: OwnedFd,
}

/// The way to another device.
enum Outgoing {
    /// There is none before this time.
    None(Instant),
    /// It is asked for.
    Asked(OwnedFd, Writer),
    Open(OwnedFd, Box<ShmSender>),
}

/// The way from another device.
struct Incoming {
    /// `None`: from the host of the own address, which says of each datagram where it comes from.
    src: Option<IpAddr>,
    dst: IpAddr,
    socket: Arc<OwnedFd>,
    reader: Reader,
    /// The other has ended; what it wrote before is still to be read.
    over: bool,
    /// It holds what cannot be.
    broken: bool,
}

/// What a pending wants.
enum Hello {
    /// To send from this address.
    Ring(IpAddr, Reader),
    /// To share the address, and to be woken by this.
    Grant(OwnedFd),
}

impl ShmLink {
    /// `shares`: others may have the same addresses.
    pub(super) fn new(shares: bool) -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &wakeup)?;
        Ok(Self {
            epoll,
            wakeup,
            listeners: Vec::new(),
            pending: Vec::new(),
            outgoing: BTreeMap::new(),
            incoming: Vec::new(),
            shares,
            trusted: false,
            addresses: SharedAddresses::default(),
            look_at: Instant::ZERO,
            sweep_at: Instant::ZERO,
            sleepers: 0,
            write_at: None,
            buffer: vec![0; LONGEST].into(),
            sent_runs: 0,
        })
    }

    /// Readable when there is something to do. Runs make it so only while someone
    /// [rests](Self::rest).
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// All that is sent from now on is, byte for byte, what an adapter has built.
    pub(super) const fn vouch(&mut self) {
        self.trusted = true;
    }

    /// Takes an address: finds it free and has `bind` make its UDP socket, or shares it with the
    /// process that has it, whose socket it is given. `exclusive`: rather not at all than shared.
    ///
    /// # Errors
    /// Those of `bind`; [`BindError::Taken`].
    pub(super) fn acquire(
        &mut self,
        address: IpAddr,
        interface: u32,
        exclusive: bool,
        bind: impl Fn() -> Result<Socket, BindError>,
    ) -> Result<Socket, BindError> {
        let mut tries = if exclusive || !self.shares { 1 } else { HANDOVER_TRIES };
        loop {
            tries -= 1;
            // whoever has the name has the address, or is about to
            match self.listen(address, interface) {
                Ok(()) => match bind() {
                    Ok(socket) => {
                        self.found(address, interface, &socket)
                            .map_err(|source| BindError::System { address, source })?;
                        return Ok(socket);
                    }
                    Err(error) => {
                        self.forget(address);
                        // Perhaps its peers have it, of whom none has become its host yet.
                        if tries == 0 || !matches!(error, BindError::Taken(_)) {
                            return Err(error);
                        }
                    }
                },
                // such names are not to be had here
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return bind(),
                // perhaps it is about to close
                Err(_) if exclusive => return Err(BindError::Taken(address)),
                Err(_) if !self.shares => return bind(),
                Err(_) => match self.join_shared(address, interface) {
                    Ok(socket) => return Ok(socket),
                    // it has just ended, perhaps
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && tries > 0 => {
                    }
                    // somebody has the name, and perhaps not the address
                    Err(_) => {
                        self.forget(address);
                        return bind();
                    }
                },
            }
            thread::sleep(HANDOVER);
        }
    }

    /// Can be found at this address from now on.
    fn listen(&mut self, address: IpAddr, interface: u32) -> io::Result<()> {
        let socket = socket::listen(address, interface)?;
        watch(&self.epoll, &socket)?;
        self.listeners.push(Listener { address, socket });
        Ok(())
    }

    fn found(&mut self, address: IpAddr, interface: u32, socket: &Socket) -> io::Result<()> {
        if self.shares {
            self.addresses.found(address, interface, socket.as_fd().try_clone_to_owned()?)?;
        }
        Ok(())
    }

    /// Shares an address with the process that has it. This waits for its answer.
    fn join_shared(&mut self, address: IpAddr, interface: u32) -> io::Result<Socket> {
        let host = Arc::new(request_grant(&self.epoll, &self.wakeup, address, interface)?);
        wait(&[host.as_fd()], Some(OWNER_ANSWERS))?;
        let Grant { ring, udp, register } =
            Grant::receive(&host)?.ok_or(io::ErrorKind::TimedOut)?;
        let socket = Socket::from(udp.try_clone()?);
        self.attach_ring(address, ring, host.clone())?;
        self.addresses.join(address, interface, udp, &register, host)?;
        Ok(socket)
    }

    /// Receives what the host of an address hands on.
    fn attach_ring(
        &mut self,
        address: IpAddr,
        ring: OwnedFd,
        host: Arc<OwnedFd>,
    ) -> io::Result<()> {
        let reader = Reader::new(ring)?;
        reader.set_asleep(self.sleepers > 0);
        self.incoming.push(Incoming {
            src: None,
            dst: address,
            socket: host,
            reader,
            over: false,
            broken: false,
        });
        Ok(())
    }

    /// Chooses the part of the numbers that this device has, `first` if nobody has it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_slot(&mut self, first: u8) -> io::Result<()> {
        self.addresses.choose_slot(first)
    }

    /// Whether another process reads the UDP socket of this address.
    pub(super) fn is_peer(&self, address: IpAddr) -> bool {
        self.addresses.is_peer(address)
    }

    /// Hands a datagram on to the process that it is for. Returns whether that is another than this
    /// one.
    pub(super) fn forward(&mut self, datagram: &Datagram<'_>) -> bool {
        self.addresses.forward(datagram)
    }

    /// The address is this link's no more.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.listeners.retain(|listener| listener.address != address);
        self.outgoing.retain(|(src, _), _| *src != address);
        self.incoming.retain(|incoming| incoming.dst != address);
        if let Some(shared) = self.addresses.forget(address) {
            // others have the same socket, so that closing it is not the end of it
            let _ = epoll::delete(&self.epoll, &shared.udp);
        }
    }

    /// Whether what is sent between the two takes the short way. If it is not known yet, it is
    /// asked for.
    pub(super) fn reaches(
        &mut self,
        now: Instant,
        src: IpAddr,
        dst: IpAddr,
        interface: u32,
    ) -> bool {
        match self.outgoing.get(&(src, dst)) {
            Some(Outgoing::Open(..)) => return true,
            Some(Outgoing::Asked(..)) => return false,
            Some(Outgoing::None(until)) if now < *until => return false,
            Some(Outgoing::None(_)) => {}
            None => {
                if dst.is_multicast() || !self.has_room(now) {
                    return false;
                }
            }
        }
        let asked = ask(src, dst, interface).and_then(|(socket, writer)| {
            watch(&self.epoll, &socket)?;
            Ok(Outgoing::Asked(socket, writer))
        });
        self.outgoing.insert((src, dst), asked.unwrap_or(Outgoing::None(now.plus(ASK_AGAIN))));
        false
    }

    /// Whether another pair of addresses can be kept in mind.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.outgoing.len() >= MOST && self.sweep_at <= now {
            self.sweep_at = now.plus(ASK_AGAIN);
            self.outgoing
                .retain(|_, outgoing| !matches!(outgoing, Outgoing::None(until) if *until <= now));
        }
        self.outgoing.len() < MOST
    }

    /// Sends runs between two addresses by the short way; `None` if there is none.
    pub(super) fn send(
        &mut self,
        now: Instant,
        bytes: &[u8],
        runs: &[Transmit],
    ) -> Option<io::Result<()>> {
        let first = runs.first()?;
        let key = (first.src, first.dst);
        let Some(Outgoing::Open(_, way)) = self.outgoing.get_mut(&key) else { return None };
        let mut result = Ok(());
        for run in runs {
            let payload = bytes.get(run.range.clone()).unwrap_or_default();
            match way.send(RunHeader::of(run, self.trusted), payload) {
                Ok(()) => self.sent_runs += 1,
                Err(error) => result = Err(error),
            }
        }
        if !way.wake() {
            self.write_at = Some(now.plus(WRITE_AGAIN));
        }
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            self.outgoing.insert(key, Outgoing::None(now.plus(ASK_AGAIN)));
        }
        Some(result)
    }

    /// When it wants to be [attended](Self::attend) to although its descriptor is not readable.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.addresses.looks_at().into_iter().chain(self.write_at).min()
    }

    /// Does what is due besides receiving: who comes, who goes, what found no room.
    pub(super) fn attend(&mut self, now: Instant) {
        if self.write_at.is_some_and(|due| due <= now) {
            self.write_at = None;
            for outgoing in self.outgoing.values_mut() {
                let Outgoing::Open(_, way) = outgoing else { continue };
                if way.write_backlog().is_err() {
                    *outgoing = Outgoing::None(now.plus(ASK_AGAIN));
                } else if !way.wake() {
                    self.write_at = Some(now.plus(WRITE_AGAIN));
                }
            }
            self.flush(now);
        }
        if self.addresses.looks_at().is_some_and(|due| due <= now) {
            self.elect_owners(now);
        }
        if now < self.look_at && self.sleepers == 0 {
            return;
        }
        self.look_at = now.plus(LOOK);
        let mut events = [const { MaybeUninit::uninit() }; 1];
        if !matches!(
            epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())),
            Ok(([_, ..], _))
        ) {
            return;
        }
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        self.accept_pending();
        self.addresses.read_updates();
        self.elect_owners(now);
        for outgoing in self.outgoing.values_mut() {
            outgoing.look(now);
        }
        self.incoming.retain_mut(|incoming| {
            incoming.over |= is_over(&incoming.socket);
            !incoming.over || !incoming.reader.is_empty()
        });
    }

    /// Lets in who has come.
    fn accept_pending(&mut self) {
        for Listener { address, socket } in &self.listeners {
            while let Ok(socket) =
                rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            {
                if self.pending.len() < MAX_PENDING
                    && is_same_user(&socket)
                    && watch(&self.epoll, &socket).is_ok()
                {
                    self.pending.push(Pending { dst: *address, socket });
                }
            }
        }
        for pending in mem::take(&mut self.pending) {
            match pending.hello() {
                Ok(None) => self.pending.push(pending),
                Ok(Some(Hello::Ring(src, reader)))
                    if self.incoming.len() < MOST
                        && send_with(&pending.socket, &[0], &[self.wakeup.as_fd()]).is_ok() =>
                {
                    let Pending { dst, socket } = pending;
                    reader.set_asleep(self.sleepers > 0);
                    let (src, socket) = (Some(src), Arc::new(socket));
                    self.incoming.push(Incoming {
                        src,
                        dst,
                        socket,
                        reader,
                        over: false,
                        broken: false,
                    });
                }
                Ok(Some(Hello::Grant(wakeup))) => {
                    let _ = self.addresses.accept_peer(pending.dst, pending.socket, wakeup); // who is not let in sees that it is over
                }
                _ => {}
            }
        }
    }

    /// Has each address whose host has ended find the next, which may be this process.
    fn elect_owners(&mut self, now: Instant) {
        let Self { epoll, wakeup, listeners, addresses, .. } = self;
        let mut moving = Vec::new();
        for shared in addresses.addresses() {
            let again = Role::Looking(now.plus(HANDOVER));
            shared.role = match mem::replace(&mut shared.role, again) {
                Role::Peer(host) if is_over(&host) => Role::Looking(now),
                Role::Asking(socket) => match Grant::receive(&socket) {
                    Ok(None) => Role::Asking(socket),
                    Ok(Some(room)) => {
                        let host = Arc::new(socket);
                        moving.push((shared.address, room, host.clone()));
                        Role::Peer(host)
                    }
                    Err(_) => continue,
                },
                other => other,
            };
            if !matches!(shared.role, Role::Looking(due) if due <= now) {
                continue;
            }
            shared.role = if let Ok(socket) = socket::listen(shared.address, shared.interface) {
                // What comes by the UDP socket is this process's to read now. Who sleeps does so on
                // the descriptor of these here.
                let _ = watch(epoll, &socket).and_then(|()| watch(epoll, &shared.udp));
                listeners.push(Listener { address: shared.address, socket });
                Role::Owner
            } else {
                let asked = request_grant(epoll, wakeup, shared.address, shared.interface);
                asked.map_or(Role::Looking(now.plus(HANDOVER)), Role::Asking)
            };
        }
        for (address, room, host) in moving {
            match self.attach_ring(address, room.ring, host) {
                Ok(()) => self.addresses.announce(address),
                Err(_) => self.addresses.look_again(address, now.plus(HANDOVER)),
            }
        }
    }

    /// Has those read who share an address, and tries again later what finds no room.
    fn flush(&mut self, now: Instant) {
        if !self.addresses.flush() {
            self.write_at = Some(now.plus(WRITE_AGAIN));
        }
    }

    /// Whether there are rings from others, each of which has brought something before, and nobody
    /// sleeps.
    pub(super) fn are_settled(&self) -> bool {
        self.sleepers == 0
            && !self.incoming.is_empty()
            && self.incoming.iter().all(|incoming| !incoming.reader.is_fresh())
    }

    /// Hands over runs that have datagram, some at a time; returns how many.
    pub(super) fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> usize {
        let mut count = 0;
        let mut broken = false;
        let Self { incoming, buffer, sleepers, addresses, .. } = self;
        let mut sink = |datagram: &Datagram<'_>| {
            if !addresses.forward(datagram) {
                sink(datagram);
            }
        };
        for incoming in incoming.iter_mut() {
            for _ in 0..BATCH {
                match incoming.reader.pop(buffer) {
                    Ok(Some(header)) => {
                        count += 1;
                        incoming.hand_over(header, buffer, &mut sink);
                    }
                    Ok(None) if *sleepers > 0 => {
                        incoming.reader.set_asleep(true);
                        if incoming.reader.is_empty() {
                            break;
                        }
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
            self.incoming.retain(|incoming| !incoming.broken);
        }
        self.flush(now);
        count
    }

    /// Someone is about to sleep on the descriptors. Returns whether there is nothing to receive.
    pub(super) fn park(&mut self) -> bool {
        self.sleepers += 1;
        self.incoming.iter().for_each(|incoming| incoming.reader.set_asleep(true));
        self.incoming.iter().all(|incoming| incoming.reader.is_empty())
    }

    /// It does not sleep any more.
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

    fn shared_runs(&self) -> u64 {
        self.sent_runs
    }

    fn forwarded(&self) -> u64 {
        self.addresses.forwarded()
    }
}

impl Incoming {
    fn hand_over(&self, header: RunHeader, buffer: &[u8], sink: &mut dyn FnMut(&Datagram<'_>)) {
        let RunHeader { length, segment, traffic_class, hop_limit, checksum_verified } = header;
        let meta = DatagramMeta { not_ready: false, checksum_verified };
        let dst = self.dst;
        let Some(src) = self.src else {
            if let Some((net, datagram)) = ForwardHeader::read(&header, dst, &buffer[..length]) {
                sink(&Datagram { net: &net, bytes: datagram, meta });
            }
            return;
        };
        let run = Transmit {
            src,
            dst,
            src_port: ROCE_UDP_PORT,
            traffic_class,
            hop_limit,
            segment,
            range: 0..length,
        };
        for (index, datagram) in buffer[..length].chunks(segment).enumerate() {
            sink(&Datagram { net: &run.net_header(index), bytes: datagram, meta });
        }
    }
}

impl Outgoing {
    /// Goes on if there is an answer, and gives up if the other is gone.
    fn look(&mut self, now: Instant) {
        *self = match mem::replace(self, Self::None(now)) {
            Self::Asked(socket, writer) => match receive_with(&socket, &mut [0]) {
                Ok((1.., mut given)) if given.len() == 1 => {
                    let wakeup = given.remove(0);
                    Self::Open(socket, Box::new(ShmSender::new(writer, wakeup)))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Self::Asked(socket, writer)
                }
                _ => Self::None(now.plus(ASK_AGAIN)),
            },
            Self::Open(socket, _) if is_over(&socket) => Self::None(now),
            other => other,
        };
    }
}

impl Pending {
    /// What it wants, once it has said so.
    fn hello(&self) -> io::Result<Option<Hello>> {
        let mut said = [0; HELLO_RING_LEN];
        let (length, mut given) = match receive_with(&self.socket, &mut said) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        match (said.split_first_chunk(), given.pop()) {
            (Some((&HELLO_RING, address)), Some(memory)) if length == HELLO_RING_LEN => {
                let address: [u8; 16] =
                    address.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(Some(Hello::Ring(Ipv6Addr::from(address).to_canonical(), Reader::new(memory)?)))
            }
            (Some((&HELLO_SHARE, _)), Some(wakeup)) if length == HELLO_SHARE.len() => {
                Ok(Some(Hello::Grant(wakeup)))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Asks whoever has `dst` for the short way there.
fn ask(src: IpAddr, dst: IpAddr, interface: u32) -> io::Result<(OwnedFd, Writer)> {
    let socket = connect(dst, interface)?;
    let (writer, memory) = Writer::new()?;
    let mut hello = [0; HELLO_RING_LEN];
    let (first, address) = hello.split_at_mut(HELLO_RING.len());
    first.copy_from_slice(&HELLO_RING);
    address.copy_from_slice(&mapped(src).octets());
    send_with(&socket, &hello, &[memory.as_fd()])?;
    Ok((socket, writer))
}

/// Asks the host of an address to share it.
fn request_grant(
    epoll: &OwnedFd,
    wakeup: &OwnedFd,
    address: IpAddr,
    interface: u32,
) -> io::Result<OwnedFd> {
    let socket = connect(address, interface)?;
    watch(epoll, &socket)?;
    send_with(&socket, &HELLO_SHARE, &[wakeup.as_fd()])?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
