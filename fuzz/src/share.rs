//! Target: hostile clients of the service that shares addresses among users.
//!
//! They write anything at any time. An honest client with a partition and a service still receives
//! its datagrams.

use std::{
    fs::{self, File, OpenOptions},
    io::{IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use roce_provider::link::{Datagram, ShareService};
use roce_transport::{
    time::Instant,
    wire::{FrameFields, Ident, NetHeader},
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::input::Input;

const STEPS: usize = 200;
const MAX_CLIENTS: usize = 30;
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVICE: u64 = 7;
const CLAIM: u8 = 1;
const DONE: u8 = 0;

/// Coverage of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Connections of hostile clients.
    pub connected: usize,
    /// Responses to them.
    pub answered: usize,
    /// Datagrams to them.
    pub received: usize,
    /// Datagrams of the honest client.
    pub honest: usize,
}

/// Panics if the service does, or the honest client loses something.
pub fn share(bytes: &[u8]) -> Reach {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    input.play(STEPS, |input| world.step(input));
    world.check();
    world.reach
}

struct Client {
    data: OwnedFd,
    /// 0: it has none.
    partition: u8,
    requests: File,
    responses: File,
}

impl Client {
    /// The service's connection has this secret.
    fn accept(listener: &OwnedFd, secret: [u8; 16]) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let data = rustix::net::accept_with(listener, flags).ok()?;
        let mut said = [0; 24];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut said)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&data, &mut into, &mut ancillary, flags).ok()?;
        assert_eq!(said[..16], secret);
        let mut descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let (requests, responses) = (descriptors.next()?.into(), descriptors.next()?.into());
        Some(Self { data, partition: said[16], requests, responses })
    }

    fn ask(&mut self, kind: u8, number: u8, service: u64) {
        let mut request = [0; 40];
        postcard::to_slice(&(u32::from(number), kind, service), &mut request).unwrap();
        let _ = self.requests.write(&request); // the service may have closed it
    }

    /// The number and the response.
    fn response(&mut self) -> Option<[u8; 2]> {
        let mut response = [0; 8];
        let read = self.responses.read(&mut response).ok().filter(|length| *length == 8);
        let (number, response): (u32, u8) = postcard::from_bytes(&response[..read?]).unwrap();
        Some([u8::try_from(number).unwrap(), response])
    }

    fn received(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            match rustix::net::recv(&self.data, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, length @ 28..)) => all.push(bytes[28..length].to_vec()),
                _ => return all,
            }
        }
    }
}

struct World {
    directory: PathBuf,
    /// Datagrams that arrive at the service.
    arrived: Vec<Vec<u8>>,
    service: Option<ShareService>,
    now: Instant,
    /// Sockets and secrets of hostile clients that wait for the service.
    waiting: Vec<(OwnedFd, [u8; 16])>,
    clients: Vec<Client>,
    honest: Option<Client>,
    partition: u8,
    reach: Reach,
}

impl World {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("roce-fuzz-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name).join("share");
        fs::create_dir(directory.parent().unwrap()).unwrap();
        let mut world = Self {
            service: Some(service(&directory)),
            directory,
            arrived: Vec::new(),
            now: Instant::ZERO,
            waiting: Vec::new(),
            clients: Vec::new(),
            honest: None,
            partition: 0,
            reach: Reach::default(),
        };
        world.join();
        world
    }

    fn fifo(&self) -> PathBuf {
        let namespace = fs::metadata("/proc/self/ns/net").unwrap().ino();
        self.directory.join(format!("{namespace}-{ADDRESS}"))
    }

    fn write_to_fifo(&self, bytes: &[u8]) {
        let mut options = OpenOptions::new();
        let fifo = options.write(true).custom_flags(libc::O_NONBLOCK).open(self.fifo());
        let _ = fifo.unwrap().write(bytes); // may be full
    }

    fn request_to_join(&self, wanted: u8) -> (OwnedFd, [u8; 16]) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let process = u128::from(std::process::id()) << 64;
        let number = process | u128::from(NUMBER.fetch_add(1, Ordering::Relaxed));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = rustix::net::socket_with(family, kind, flags, None).unwrap();
        let name = format!("roce client {number:032x}");
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::bind(&listener, &name).unwrap();
        rustix::net::listen(&listener, 4).unwrap();
        let secret = (!number).to_be_bytes();
        let mut request = [&b"knock\0\0\x04"[..], &number.to_be_bytes(), &secret].concat();
        request.extend([wanted; 24]);
        self.write_to_fifo(&request);
        (listener, secret)
    }

    /// Returns the number of datagrams for none of the clients.
    fn serve(&mut self) -> usize {
        let service = self.service.as_mut().unwrap();
        service.look(); // it has slept
        service.attend(self.now);
        let net = NetHeader {
            src: [10, 0, 0, 2].into(),
            dst: ADDRESS,
            src_port: 61_000,
            traffic_class: 0,
            hop_limit: 64,
            ident: Ident::Likely(0),
            frame: FrameFields::default(),
        };
        let mut rest = 0;
        for bytes in self.arrived.drain(..) {
            service.forward(&Datagram::new(&net, &bytes).into(), &mut |_| rest += 1);
        }
        while service.poll_ended().is_some() {}
        rest
    }

    fn join(&mut self) {
        let (listener, secret) = self.request_to_join(self.partition);
        let mut honest = None;
        // others may precede it
        for _ in 0..300 {
            self.serve();
            honest = Client::accept(&listener, secret);
            if honest.is_some() {
                break;
            }
        }
        let mut honest = honest.expect("it is let in");
        let partition = honest.partition;
        assert!(partition > 0 && (self.partition == 0 || partition == self.partition));
        honest.ask(CLAIM, 9, SERVICE);
        self.serve();
        assert_eq!(honest.response(), Some([9, DONE]));
        self.partition = partition;
        self.honest = Some(honest);
    }

    fn arrive(&mut self, partition: u8, what: u8) {
        let mut bytes = vec![what; 32];
        bytes[..8].copy_from_slice(&[4, 0, 0xFF, 0xFF, 0, partition << 2, 0, 2]);
        self.arrived.push(bytes);
    }

    /// The honest client receives its datagrams and keeps its objects.
    fn check(&mut self) {
        for what in 0..3 {
            self.arrive(self.partition, what);
        }
        assert_eq!(self.serve(), 0);
        let honest = self.honest.as_mut().unwrap();
        honest.ask(CLAIM, 8, SERVICE);
        let received = honest.received();
        assert_eq!(received.iter().map(|bytes| bytes[8]).collect::<Vec<_>>(), [0, 1, 2]);
        self.reach.honest += received.len();
        self.serve();
        assert_eq!(self.honest.as_mut().unwrap().response(), Some([8, DONE]));
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 12 {
            0 => self.check(),
            1 | 2 if self.waiting.len() + self.clients.len() < MAX_CLIENTS => {
                let wanted = input.byte() % 64;
                self.waiting.push(self.request_to_join(if wanted < 48 { 0 } else { wanted }));
            }
            3 => {
                let length = input.byte() % 80;
                self.write_to_fifo(input.bytes(length.into()));
            }
            4 => self.now = self.now.plus(Duration::from_millis(20 * u64::from(input.byte()))),
            5 => {
                let partition = input.byte() % 64;
                if partition != self.partition {
                    self.arrive(partition, input.byte());
                }
            }
            6 => {
                let index = usize::from(input.byte());
                if index < self.clients.len() {
                    self.clients.swap_remove(index);
                }
            }
            7 if input.byte() < 16 => {
                self.service = None;
                self.service = Some(service(&self.directory));
                self.join();
            }
            8 => {
                let (index, length) = (input.byte(), input.byte() % 80);
                let bytes = input.bytes(length.into());
                if let Some(client) = self.clients.get_mut(usize::from(index)) {
                    let _ = client.requests.write(bytes);
                }
            }
            _ => {
                let index = usize::from(input.byte()) % self.clients.len().max(1);
                let kind = [0, 1, 2, 3, 4, 0, 1, 2][usize::from(input.byte() % 8)];
                let number = input.byte();
                // few services and connections
                let service = u64::from(input.byte() % 10) | u64::from(input.byte() & 0xC0) << 56;
                if let Some(client) = self.clients.get_mut(index) {
                    client.ask(kind, number, service);
                }
            }
        }
        self.serve();
        let come = self.waiting.extract_if(.., |(listener, secret)| {
            let client = Client::accept(listener, *secret);
            self.reach.connected += usize::from(client.is_some());
            let has_come = client.is_some();
            self.clients.extend(client);
            has_come
        });
        come.for_each(drop);
        for client in &mut self.clients {
            self.reach.received += client.received().len();
            while client.response().is_some() {
                self.reach.answered += 1;
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.service = None;
        let _ = fs::remove_dir_all(self.directory.parent().unwrap());
    }
}

fn service(directory: &Path) -> ShareService {
    ShareService::new(directory, &[(ADDRESS, 0)], usize::MAX).unwrap()
}
