//! A hostile process: sockets, rings, and any descriptors.

use std::{
    fs::File,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{MemfdFlags, SealFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    },
};

use crate::input::Input;

/// A ring's layout.
const HEAD: u64 = 0;
pub(super) const START: u64 = 4096;
const CAPACITY: u64 = 2 << 20;
pub(super) const RING_SIZE: u64 = START + CAPACITY;
const SKIP: u64 = u64::MAX;

/// Length of a table of claims.
const CLAIMS: u64 = 8 * (512 + 62 * 4096) + 4096 + 62 * 4096 * 32;
const MAX_DESCRIPTORS: usize = 7;
/// For the device to ask for its address.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Ring {
    pub(super) memory: File,
    head: u64,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self { memory: memory(RING_SIZE, true), head: 0 }
    }
}

fn memory(length: u64, sealed: bool) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&memory, length).unwrap();
    if sealed {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
    }
    memory.into()
}

pub(super) fn write_word(memory: &File, at: u64, value: u64) {
    // not every descriptor is memory
    let _ = memory.write_all_at(&value.to_ne_bytes(), at);
}

pub(super) struct Connection {
    socket: OwnedFd,
    pub(super) ring: Option<Ring>,
    pub(super) granted: Vec<File>,
}

impl Connection {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self { socket, ring: None, granted: Vec::new() }
    }

    pub(super) fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags);
    }

    pub(super) fn greet(&mut self, input: &mut Input<'_>) {
        let (kind, damage) = (input.byte(), input.byte());
        let mut bytes = if kind & 1 == 0 {
            let src = Ipv4Addr::new(10, 0, 0, damage);
            hello(&[&[0, 0], &src.octets()[..]].concat())
        } else if damage & 1 == 0 {
            hello(&[2])
        } else {
            here(1 + damage / 2 % 8)
        };
        match damage {
            250..=252 => bytes.truncate(usize::from(input.byte())),
            253 => bytes.extend(input.bytes(20)),
            254..=255 => {
                let at = usize::from(input.byte()) % bytes.len();
                bytes[at] ^= input.byte();
            }
            _ => {}
        }
        let ring = Ring::new();
        let descriptors = match kind >> 1 {
            0..=47 if kind & 1 == 0 => vec![ring.memory.as_fd().try_clone_to_owned().unwrap()],
            0..=47 => vec![],
            kind => any_descriptors(kind),
        };
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        self.say(&bytes, &borrowed);
        if kind & 1 == 0 {
            self.ring = Some(ring);
        }
    }

    pub(super) fn offer(&mut self, input: &mut Input<'_>) {
        let (term, ring) = (input.byte() % 4, Ring::new());
        self.say(&hello(&[1, term]), &[ring.memory.as_fd()]);
        self.ring = Some(ring);
    }

    pub(super) fn response(&self, input: &mut Input<'_>) {
        let kind = input.byte();
        let descriptors = if kind < 128 { vec![wakeup()] } else { any_descriptors(kind) };
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        self.say(&[0][..usize::from(input.byte().min(1))], &borrowed);
    }

    pub(super) fn take(&self) -> Vec<OwnedFd> {
        let mut found = Vec::new();
        while let Some((_, descriptors)) = receive(&self.socket) {
            found.extend(descriptors);
        }
        found
    }

    pub(super) fn write_word(&mut self, input: &mut Input<'_>) {
        let (at, value) = (input.byte(), u64::from_le_bytes(input.array()));
        let Some(ring) = &self.ring else { return };
        let at = match at {
            0..=23 => u64::from(at) * 8,
            _ => START + (ring.head + u64::from(at) * 8) % CAPACITY,
        };
        write_word(&ring.memory, at, value);
    }

    /// A record, valid or nearly; its header is from the input.
    pub(super) fn push_run(&mut self, input: &mut Input<'_>) {
        let (how, [a, b, c, d]) = (input.byte(), input.array());
        let Some(ring) = &mut self.ring else { return };
        let (length, segment) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let segment = if how & 1 == 0 { segment.min(length) } else { segment };
        let rest = if how & 2 == 0 { u16::from(how) << 8 & 0xBFFF } else { u16::from(how) << 8 };
        let size = 8 + (u64::from(length) + 1).next_multiple_of(8);
        let position = ring.head % CAPACITY;
        if position + size > CAPACITY || (how & 4 != 0 && position > 0) {
            write_word(&ring.memory, START + position, SKIP);
            ring.head += CAPACITY - position;
        }
        let word = u64::from(length)
            | u64::from(segment) << 16
            | u64::from(rest) << 32
            | u64::from(how) << 48;
        write_word(&ring.memory, START + ring.head % CAPACITY, word);
        ring.head += if how & 0x18 == 0x18 { size + u64::from(c) } else { size };
        write_word(&ring.memory, HEAD, ring.head);
    }
}

fn hello(fields: &[u8]) -> Vec<u8> {
    let mut bytes = [b"roce\x09", fields].concat();
    bytes.resize(24, 0);
    bytes
}

pub(super) fn here(partition: u8) -> Vec<u8> {
    hello(&[3, partition])
}

fn wakeup() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn any_descriptors(kind: u8) -> Vec<OwnedFd> {
    match kind % 12 {
        0 => vec![],
        1 => vec![File::open("/dev/null").unwrap().into()],
        2 => vec![memory(RING_SIZE, false).into()],
        3 => vec![memory(4096, true).into()],
        4 => vec![full_socket(false)],
        5 => vec![full_socket(true)],
        6 => vec![wakeup(), wakeup()],
        7 => vec![memory(RING_SIZE, true).into(), wakeup(), wakeup(), wakeup()],
        8 => vec![full_wakeup()],
        9 => vec![File::open("/").unwrap().into()],
        10 => {
            vec![rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap()]
        }
        _ => vec![memory(0, true).into()],
    }
}

/// Writes to it block, or with a closed peer raise SIGPIPE.
fn full_socket(closed: bool) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let (full, other) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    if closed {
        return full;
    }
    while rustix::net::send(&full, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
    // open until the process ends
    std::mem::forget(other);
    full
}

/// Writes to it block.
fn full_wakeup() -> OwnedFd {
    let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    full
}

/// `partition`: to its process instead of the address's receiver.
pub(super) fn connect(address: IpAddr, partition: Option<u8>) -> Option<OwnedFd> {
    let socket = unix_socket();
    rustix::net::connect(&socket, &name(address, partition)).ok()?;
    Some(socket)
}

pub(super) fn listen(address: IpAddr, partition: Option<u8>) -> OwnedFd {
    let socket = unix_socket();
    // a device of an earlier run may still be closing the name, in a thread
    let until = Instant::now() + PATIENCE;
    while let Err(error) = rustix::net::bind(&socket, &name(address, partition)) {
        assert!(error == rustix::io::Errno::ADDRINUSE && Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_micros(100));
    }
    rustix::net::listen(&socket, 16).unwrap();
    socket
}

pub(super) fn accept(socket: &OwnedFd) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::accept_with(socket, flags).ok()
}

/// Waits for the device to ask for its address, and grants as scripted.
pub(super) fn grant(owner: &OwnedFd, script: &[u8], address: IpAddr) -> Option<OwnedFd> {
    let mut input = Input::new(script);
    let until = Instant::now() + PATIENCE;
    let connection = loop {
        if let Some(socket) = accept(owner) {
            break Connection::new(socket);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    while receive(&connection.socket).is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_micros(100));
    }
    let udp = std::net::UdpSocket::bind((address, 4791)).unwrap();
    let (claims, services) = (memory(CLAIMS, true), memory(0, true));
    let claims = [&claims, &services, &services].map(AsFd::as_fd);
    let honest = [udp.as_fd(), owner.as_fd()].into_iter().chain(claims);
    let mut descriptors: Vec<_> = honest.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
    let which = input.byte();
    if which >= 64 {
        let place = usize::from(which) % descriptors.len();
        descriptors.splice(place..=place, any_descriptors(input.byte()));
        descriptors.truncate(MAX_DESCRIPTORS);
    }
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    connection.say(input.bytes(8), &borrowed);
    Some(connection.socket)
}

fn receive(socket: &OwnedFd) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 256];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
    let length = received.ok()?.bytes;
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        })
        .collect();
    (length > 0 || !descriptors.is_empty()).then_some((length, descriptors))
}

fn unix_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn name(address: IpAddr, partition: Option<u8>) -> SocketAddrUnix {
    let partition = partition.map_or_else(String::new, |partition| format!(" #{partition}"));
    SocketAddrUnix::new_abstract_name(format!("roce 4791 {address}{partition}").as_bytes()).unwrap()
}
