//! The short way to a device of the same host: memory that two processes share, in the place of the network stack.
//!
//! Each address that a link is bound to has a socket in the abstract name space of Unix sockets, which is one per network
//! namespace, as the addresses are. Who is about to send to an address looks whether there is one of that name. If there is, and
//! it belongs to the same user, the sender makes a [ring](ring), sends the memory's descriptor, and gets an event descriptor with
//! which it can wake the receiver. Until the answer is there, and wherever there is no such socket, packets take the network
//! stack. The ring carries what the network would: runs of whole packets, ICRC included.
//!
//! A connection of Unix sockets also tells at once when the other process ends, however it ends.

mod ring;

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, IoSlice, IoSliceMut},
    mem::{self, MaybeUninit},
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use roce_transport::{adapter::Transmit, addr::ROCE_UDP_PORT, time::Instant};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
    },
};

use super::{Arrived, BATCH};
use ring::{Broken, LONGEST, Reader, RunHeader, Writer};

/// How often a link that nobody sleeps on looks whether others come or go.
const LOOK: Duration = Duration::from_millis(1);
/// How long nobody asks again whether an address has a socket by now.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How soon it is tried again to write what found no room.
const WRITE_AGAIN: Duration = Duration::from_micros(50);
/// Pairs of addresses that are kept in mind.
const MOST: usize = 1024;
/// Who has connected and not yet said what for.
const STRANGERS: usize = 64;
/// Bytes that wait for room in a ring; more are lost, as when a socket's buffer is full.
const BACKLOG: usize = 16 << 20;

/// First in what a sender says; its last part changes with everything about the ring.
const GREETING: [u8; 8] = *b"roce\0\0\0\x01";
const GREETING_LEN: usize = GREETING.len() + 16;

/// Devices of this host, and the rings to and from them.
pub(super) struct Neighbours {
    /// Readable when any of the descriptors here is. Its descriptor never changes.
    epoll: OwnedFd,
    /// Written to by others to wake this side.
    bell: OwnedFd,
    listeners: Vec<Listener>,
    strangers: Vec<Stranger>,
    outgoing: BTreeMap<(IpAddr, IpAddr), Outgoing>,
    incoming: Vec<Incoming>,
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

struct Stranger {
    dst: IpAddr,
    socket: OwnedFd,
}

/// The way to another device.
enum Outgoing {
    /// There is none before this time.
    None(Instant),
    /// It is asked for.
    Asked(OwnedFd, Writer),
    Open(Box<Open>),
}

struct Open {
    socket: OwnedFd,
    writer: Writer,
    bell: OwnedFd,
    /// Runs that found no room, in order.
    backlog: VecDeque<(RunHeader, Box<[u8]>)>,
    backlog_bytes: usize,
}

/// The way from another device.
struct Incoming {
    src: IpAddr,
    dst: IpAddr,
    socket: OwnedFd,
    reader: Reader,
    /// The other has ended; what it wrote before is still to be read.
    over: bool,
    /// It holds what cannot be.
    broken: bool,
}

impl Neighbours {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &bell)?;
        Ok(Self {
            epoll,
            bell,
            listeners: Vec::new(),
            strangers: Vec::new(),
            outgoing: BTreeMap::new(),
            incoming: Vec::new(),
            look_at: Instant::ZERO,
            sweep_at: Instant::ZERO,
            sleepers: 0,
            write_at: None,
            buffer: vec![0; LONGEST].into(),
            sent_runs: 0,
        })
    }

    /// Readable when there is something to do. Runs make it so only while someone [rests](Self::rest).
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Can be found at this address from now on. If the name is taken, packets for it take the network stack.
    pub(super) fn listen(&mut self, address: IpAddr, interface: u32) {
        let listen = || -> io::Result<OwnedFd> {
            let socket = unix_socket()?;
            rustix::net::bind(&socket, &name(address, interface)?)?;
            rustix::net::listen(&socket, 128)?;
            watch(&self.epoll, &socket)?;
            Ok(socket)
        };
        if let Ok(socket) = listen() {
            self.listeners.push(Listener { address, socket });
        }
    }

    /// The address is this link's no more.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.listeners.retain(|listener| listener.address != address);
        self.outgoing.retain(|(src, _), _| *src != address);
        self.incoming.retain(|incoming| incoming.dst != address);
    }

    /// Whether what is sent between the two takes the short way. If it is not known yet, it is asked for.
    pub(super) fn reaches(&mut self, now: Instant, src: IpAddr, dst: IpAddr, interface: u32) -> bool {
        match self.outgoing.get(&(src, dst)) {
            Some(Outgoing::Open(_)) => return true,
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
            self.outgoing.retain(|_, outgoing| !matches!(outgoing, Outgoing::None(until) if *until <= now));
        }
        self.outgoing.len() < MOST
    }

    /// Sends runs between two addresses for which [`reaches`](Self::reaches) is true.
    pub(super) fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<()> {
        let Some(first) = runs.first() else { return Ok(()) };
        let key = (first.src, first.dst);
        let Some(Outgoing::Open(open)) = self.outgoing.get_mut(&key) else { return Ok(()) };
        let mut result = Ok(());
        for run in runs {
            let payload = bytes.get(run.range.clone()).unwrap_or_default();
            match open.send(RunHeader::of(run), payload) {
                Ok(()) => self.sent_runs += 1,
                Err(error) => result = Err(error),
            }
        }
        open.wake();
        if !open.backlog.is_empty() {
            self.write_at = Some(now.plus(WRITE_AGAIN));
        }
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            self.outgoing.insert(key, Outgoing::None(now.plus(ASK_AGAIN)));
        }
        result
    }

    /// Runs handed to others since the link was opened.
    pub(super) const fn sent_runs(&self) -> u64 {
        self.sent_runs
    }

    /// When it wants to be [attended](Self::attend) to although its descriptor is not readable.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.write_at
    }

    /// Does what is due besides receiving: who comes, who goes, what found no room.
    pub(super) fn attend(&mut self, now: Instant) {
        if self.write_at.is_some_and(|due| due <= now) {
            self.write_at = None;
            for outgoing in self.outgoing.values_mut() {
                let Outgoing::Open(open) = outgoing else { continue };
                if open.write_backlog().is_err() {
                    *outgoing = Outgoing::None(now.plus(ASK_AGAIN));
                    continue;
                }
                open.wake();
                if !open.backlog.is_empty() {
                    self.write_at = Some(now.plus(WRITE_AGAIN));
                }
            }
        }
        if now < self.look_at && self.sleepers == 0 {
            return;
        }
        self.look_at = now.plus(LOOK);
        let mut events = [const { MaybeUninit::uninit() }; 1];
        if !matches!(epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())), Ok(([_, ..], _))) {
            return;
        }
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.welcome();
        for outgoing in self.outgoing.values_mut() {
            outgoing.look(now);
        }
        self.incoming.retain_mut(|incoming| {
            incoming.over |= is_over(&incoming.socket);
            !incoming.over || !incoming.reader.is_empty()
        });
    }

    /// Lets in who has come.
    fn welcome(&mut self) {
        for Listener { address, socket } in &self.listeners {
            while let Ok(socket) = rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                if self.strangers.len() < STRANGERS && is_same_user(&socket) && watch(&self.epoll, &socket).is_ok() {
                    self.strangers.push(Stranger { dst: *address, socket });
                }
            }
        }
        for stranger in mem::take(&mut self.strangers) {
            match stranger.greeting() {
                Ok(None) => self.strangers.push(stranger),
                Ok(Some((src, reader)))
                    if self.incoming.len() < MOST && send_with(&stranger.socket, &[0], &self.bell).is_ok() =>
                {
                    let Stranger { dst, socket } = stranger;
                    reader.set_asleep(self.sleepers > 0);
                    self.incoming.push(Incoming { src, dst, socket, reader, over: false, broken: false });
                }
                _ => {}
            }
        }
    }

    /// Whether there are rings from others, each of which has brought something before, and nobody sleeps.
    pub(super) fn are_settled(&self) -> bool {
        self.sleepers == 0 && !self.incoming.is_empty() && self.incoming.iter().all(|incoming| !incoming.reader.is_fresh())
    }

    /// Hands over runs that have arrived, some at a time; returns how many.
    pub(super) fn receive(&mut self, sink: &mut dyn FnMut(&Arrived<'_>)) -> usize {
        let mut count = 0;
        let mut broken = false;
        let Self { incoming, buffer, sleepers, .. } = self;
        for incoming in incoming.iter_mut() {
            for _ in 0..BATCH {
                match incoming.reader.pop(buffer) {
                    Ok(Some(header)) => {
                        count += 1;
                        incoming.hand_over(header, buffer, sink);
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
        count
    }

    /// Someone is about to sleep on the descriptors. Returns whether there is nothing to receive.
    pub(super) fn rest(&mut self) -> bool {
        self.sleepers += 1;
        self.incoming.iter().for_each(|incoming| incoming.reader.set_asleep(true));
        self.incoming.iter().all(|incoming| incoming.reader.is_empty())
    }

    /// It does not sleep any more.
    pub(super) fn wake(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.incoming.iter().for_each(|incoming| incoming.reader.set_asleep(false));
        }
        self.look_at = Instant::ZERO;
    }
}

impl Incoming {
    fn hand_over(&self, header: RunHeader, buffer: &[u8], sink: &mut dyn FnMut(&Arrived<'_>)) {
        let RunHeader { length, segment, traffic_class, hop_limit } = header;
        let Self { src, dst, .. } = *self;
        let run = Transmit { src, dst, src_port: ROCE_UDP_PORT, traffic_class, hop_limit, segment, range: 0..length };
        for (index, datagram) in buffer[..length].chunks(segment).enumerate() {
            sink(&Arrived::new(&run.net_header(index), datagram));
        }
    }
}

impl Outgoing {
    /// Goes on if there is an answer, and gives up if the other is gone.
    fn look(&mut self, now: Instant) {
        *self = match mem::replace(self, Self::None(now)) {
            Self::Asked(socket, writer) => match receive_with(&socket, &mut [0]) {
                Ok((1.., Some(bell))) => {
                    Self::Open(Box::new(Open { socket, writer, bell, backlog: VecDeque::new(), backlog_bytes: 0 }))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Self::Asked(socket, writer),
                _ => Self::None(now.plus(ASK_AGAIN)),
            },
            Self::Open(open) if is_over(&open.socket) => Self::None(now),
            other => other,
        };
    }
}

impl Open {
    fn send(&mut self, header: RunHeader, bytes: &[u8]) -> io::Result<()> {
        self.write_backlog()?;
        if self.backlog.is_empty() && self.writer.push(header, bytes).map_err(broken)? {
            return Ok(());
        }
        if self.backlog_bytes + bytes.len() > BACKLOG {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the other process does not read what it is sent"));
        }
        self.backlog_bytes += bytes.len();
        self.backlog.push_back((header, bytes.into()));
        Ok(())
    }

    /// Writes of what waits as much as there is room for.
    fn write_backlog(&mut self) -> io::Result<()> {
        while let Some((header, bytes)) = self.backlog.front() {
            if !self.writer.push(*header, bytes).map_err(broken)? {
                break;
            }
            self.backlog_bytes -= bytes.len();
            self.backlog.pop_front();
        }
        Ok(())
    }

    fn wake(&self) {
        if self.writer.must_wake() {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes()); // full means that it is awake already
        }
    }
}

impl Stranger {
    /// What it wants, once it has said so.
    fn greeting(&self) -> io::Result<Option<(IpAddr, Reader)>> {
        let mut said = [0; GREETING_LEN];
        let (length, memory) = match receive_with(&self.socket, &mut said) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        match (said.split_first_chunk(), memory) {
            (Some((&GREETING, address)), Some(memory)) if length == GREETING_LEN => {
                let address: [u8; 16] = address.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(Some((Ipv6Addr::from(address).to_canonical(), Reader::new(memory)?)))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn broken(error: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Asks whoever has `dst` for the short way there.
fn ask(src: IpAddr, dst: IpAddr, interface: u32) -> io::Result<(OwnedFd, Writer)> {
    let socket = unix_socket()?;
    rustix::net::connect(&socket, &name(dst, interface)?)?;
    if !is_same_user(&socket) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (writer, memory) = Writer::new()?;
    let mut greeting = [0; GREETING_LEN];
    let (first, address) = greeting.split_at_mut(GREETING.len());
    first.copy_from_slice(&GREETING);
    address.copy_from_slice(&mapped(src).octets());
    send_with(&socket, &greeting, &memory)?;
    Ok((socket, writer))
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The name of an address's socket. A link-local address means something only together with an interface.
fn name(address: IpAddr, interface: u32) -> io::Result<SocketAddrUnix> {
    let name = match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("roce {ROCE_UDP_PORT} {v6}%{interface}"),
        _ => format!("roce {ROCE_UDP_PORT} {address}"),
    };
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Whether the process at the other end is of the user of this one: others can neither read what is sent nor pretend to be
/// someone by it.
fn is_same_user(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|other| other.uid == rustix::process::geteuid())
}

/// Whether the process at the other end has ended.
fn is_over(socket: &OwnedFd) -> bool {
    match rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

fn watch(epoll: &OwnedFd, descriptor: &OwnedFd) -> io::Result<()> {
    Ok(epoll::add(epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

fn send_with(socket: &OwnedFd, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives bytes, and the descriptor that came with them.
fn receive_with(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, ops::Range};

    use super::*;

    /// Nobody else's addresses: the tests of one process have a network of their own each.
    fn addresses(test: u8) -> [IpAddr; 2] {
        let [.., high, low] = std::process::id().to_be_bytes();
        [1, 2].map(|host| Ipv4Addr::new(240 | test, high, low, host).into())
    }

    fn at(micros: u64) -> Instant {
        Instant::ZERO.plus(Duration::from_micros(micros))
    }

    fn device(address: IpAddr) -> Neighbours {
        let mut neighbours = Neighbours::new().unwrap();
        neighbours.listen(address, 0);
        neighbours
    }

    /// Two devices, of which the first reaches the second; and the time then.
    fn pair(test: u8) -> (Neighbours, Neighbours, [IpAddr; 2]) {
        let [src, dst] = addresses(test);
        let (mut a, mut b) = (device(src), device(dst));
        assert!(!a.reaches(at(0), src, dst, 0));
        b.attend(at(0));
        a.attend(at(0));
        assert!(a.reaches(at(1), src, dst, 0));
        (a, b, [src, dst])
    }

    fn run([src, dst]: [IpAddr; 2], segment: usize, range: Range<usize>) -> Transmit {
        Transmit { src, dst, src_port: ROCE_UDP_PORT, traffic_class: 0xB8, hop_limit: 64, segment, range }
    }

    /// Everything that has arrived: source, place in its run, bytes.
    fn take(neighbours: &mut Neighbours) -> Vec<(IpAddr, u16, Vec<u8>)> {
        let mut taken = Vec::new();
        while neighbours.receive(&mut |arrived| {
            let roce_transport::wire::Ident::Known { id, dont_fragment: true } = arrived.net.ident else { panic!("{arrived:?}") };
            assert_eq!((arrived.net.traffic_class, arrived.net.hop_limit), (0xB8, 64));
            taken.push((arrived.net.src, id, arrived.bytes.to_vec()));
        }) > 0
        {}
        taken
    }

    #[test]
    fn packets_take_the_short_way_once_it_is_there() {
        let (mut a, mut b, ends) = pair(1);
        let [src, _] = ends;
        assert!(!b.are_settled());
        a.send(at(2), b"abcdefgh", &[run(ends, 3, 0..8), run(ends, 100, 2..4)]).unwrap();
        assert_eq!(
            take(&mut b),
            [(src, 0, b"abc".into()), (src, 1, b"def".into()), (src, 2, b"gh".into()), (src, 0, b"cd".into())]
        );
        assert!(b.are_settled());
        assert_eq!(a.sent_runs(), 2);
        // back again is another way
        let [there, back] = [ends[1], ends[0]];
        assert!(!b.reaches(at(3), there, back, 0));
    }

    #[test]
    fn nobody_there_is_asked_again_later() {
        let [src, dst] = addresses(2);
        let mut a = device(src);
        assert!(!a.reaches(at(0), src, dst, 0));
        let mut b = device(dst);
        assert!(!a.reaches(at(99_999), src, dst, 0));
        b.attend(at(99_999));
        assert!(b.incoming.is_empty());
        assert!(!a.reaches(at(100_000), src, dst, 0));
        b.attend(at(101_000));
        a.attend(at(101_000));
        assert!(a.reaches(at(101_001), src, dst, 0));
        assert!(!a.reaches(at(0), src, [239, 1, 1, 1].into(), 0), "a group is no neighbour");
    }

    #[test]
    fn who_goes_is_noticed_and_what_it_sent_before_is_received() {
        let (mut a, mut b, ends) = pair(3);
        let [src, dst] = ends;
        a.send(at(2), b"last words", &[run(ends, 10, 0..10)]).unwrap();
        drop(a);
        b.attend(at(2000));
        assert_eq!(take(&mut b), [(src, 0, b"last words".into())]);
        b.attend(at(4000));
        assert!(b.incoming.is_empty());
        // the other way round: the receiver goes, and comes back
        let mut a = device(src);
        a.reaches(at(5000), src, dst, 0);
        b.attend(at(6000));
        a.attend(at(6000));
        assert!(a.reaches(at(6001), src, dst, 0));
        drop(b);
        a.attend(at(8000));
        let mut b = device(dst);
        assert!(!a.reaches(at(8001), src, dst, 0));
        b.attend(at(9000));
        a.attend(at(9000));
        assert!(a.reaches(at(9001), src, dst, 0));
    }

    #[test]
    fn what_finds_no_room_waits_in_order() {
        let (mut a, mut b, ends) = pair(4);
        let bytes: Vec<u8> = (0..60_000).map(|index| index as u8).collect();
        let whole = run(ends, 60_000, 0..60_000);
        for _ in 0..60 {
            a.send(at(2), &bytes, std::slice::from_ref(&whole)).unwrap();
        }
        let first = run(ends, 60_000, 0..7);
        a.send(at(3), &bytes, std::slice::from_ref(&first)).unwrap();
        assert_eq!(a.deadline(), Some(at(53)));
        let mut taken = take(&mut b);
        assert!(taken.len() < 60);
        let mut now = 53;
        while a.deadline().is_some() {
            a.attend(at(now));
            taken.extend(take(&mut b));
            now += 50;
        }
        assert_eq!(taken.len(), 61);
        assert!(taken[..60].iter().all(|(.., datagram)| *datagram == bytes));
        assert_eq!(taken[60].2, bytes[..7]);
        // and what nobody ever reads is lost in the end, not kept
        let kept = (0..1000).take_while(|_| a.send(at(now), &bytes, std::slice::from_ref(&whole)).is_ok()).count();
        assert!((200..400).contains(&kept), "{kept}");
    }

    #[test]
    fn whoever_sleeps_is_woken() {
        let (mut a, mut b, ends) = pair(5);
        let is_readable = |neighbours: &Neighbours| {
            let mut events = [const { MaybeUninit::uninit() }; 1];
            matches!(epoll::wait(&neighbours.epoll, &mut events, Some(&Timespec::default())), Ok(([_, ..], _)))
        };
        let mut send = || a.send(at(2), b"x", &[run(ends, 1, 0..1)]).unwrap();
        send();
        assert!(!is_readable(&b), "it polls");
        assert!(!b.rest(), "there is something already");
        b.wake();
        take(&mut b);
        assert!(b.rest());
        assert!(!is_readable(&b));
        send();
        assert!(is_readable(&b));
        // another thread takes it, and the sleeper sleeps on
        b.attend(at(3));
        assert_eq!(take(&mut b).len(), 1);
        assert!(!is_readable(&b));
        send();
        assert!(is_readable(&b));
        b.wake();
        b.attend(at(4));
        assert_eq!(take(&mut b).len(), 1);
        send();
        assert!(!is_readable(&b), "it polls again");
    }

    #[test]
    fn what_strangers_say_is_believed_only_if_it_makes_sense() {
        let [src, dst] = addresses(6);
        let mut b = device(dst);
        let connect = || {
            let socket = unix_socket().unwrap();
            rustix::net::connect(&socket, &name(dst, 0).unwrap()).unwrap();
            socket
        };
        let nothing = connect();
        let words = connect();
        rustix::net::send(&words, b"roce", SendFlags::empty()).unwrap();
        let (other_version, no_ring) = (connect(), connect());
        let mut greeting = [0; GREETING_LEN];
        greeting[..8].copy_from_slice(&GREETING);
        send_with(&no_ring, &greeting, &nothing).unwrap();
        let (_writer, memory) = Writer::new().unwrap();
        greeting[7] += 1;
        send_with(&other_version, &greeting, &memory).unwrap();
        b.attend(at(0));
        assert_eq!((b.incoming.len(), b.strangers.len()), (0, 1));
        drop(nothing);
        b.attend(at(2000));
        assert_eq!((b.incoming.len(), b.strangers.len()), (0, 0));
        let crowd: Vec<_> = (0..STRANGERS + 10).map(|_| connect()).collect();
        b.attend(at(4000));
        assert_eq!(b.strangers.len(), STRANGERS);
        drop(crowd);
        b.attend(at(6000));
        assert!(b.strangers.is_empty());
        // and still it is there for others
        let mut a = device(src);
        a.reaches(at(6000), src, dst, 0);
        b.attend(at(8000));
        a.attend(at(8000));
        assert!(a.reaches(at(8001), src, dst, 0));
    }

    #[test]
    fn an_address_that_goes_takes_its_ways_with_it() {
        let (mut a, mut b, [src, dst]) = pair(7);
        b.forget(dst);
        assert!(b.incoming.is_empty() && b.listeners.is_empty());
        a.attend(at(2000));
        assert!(!a.reaches(at(2001), src, dst, 0));
        a.forget(src);
        assert!(a.outgoing.is_empty());
    }
}
