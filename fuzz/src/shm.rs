//! Target: a hostile process that shares memory or an address with a device.
//!
//! The process writes anything at any time, with any descriptors; an honest device sends numbered
//! datagrams. The first byte gives the address's first owner, and the hostile process's grants.

mod hammer;
mod hostile;

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::fd::OwnedFd,
    thread,
    time::Duration,
};

use roce_provider::link::{Datagram, Link, Locality, SocketOptions, UdpLink};
use roce_transport::{
    adapter::Transmit, cm::ServiceId, share::IdPartition, time::Instant, wire::FrameFields,
};

use self::{
    hammer::Hammer,
    hostile::{Connection, RING_SIZE},
};
use crate::input::Input;

const STEPS: usize = 300;
const MAX_CONNECTIONS: usize = 12;
/// Queue pair and sequence number follow.
const HONEST: [u8; 4] = *b"true";
/// Partition of the hostile process's queue pair.
const THEIRS: u8 = 1;

/// Coverage of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Datagrams from the hostile process's rings.
    pub received: usize,
    /// Received honest datagrams.
    pub honest: usize,
    /// Rings granted to the hostile process.
    pub granted: usize,
    /// Datagrams forwarded to it.
    pub forwarded: u64,
}

/// Panics if the device does or hands over an impossible datagram; or if an honest datagram is
/// lost, damaged or reordered while its address is free.
pub fn shm(bytes: &[u8]) -> Reach {
    play(bytes, |_| {})
}

/// [`shm`] while a thread writes to all shared memory, even between two reads. Not reproducible.
pub fn shm_with_hammer(bytes: &[u8]) -> Reach {
    let hammer = Hammer::start();
    play(bytes, |connections| {
        let rings = connections.iter().filter_map(|connection| connection.ring.as_ref());
        hammer.write_to(rings.map(|ring| &ring.memory));
    })
}

fn play(bytes: &[u8], each_step: impl Fn(&[Connection])) -> Reach {
    let mut input = Input::new(bytes);
    let Some(mut world) = World::new(&mut input) else { return Reach::default() };
    input.play(STEPS, |input| {
        world.step(input);
        each_step(&world.connections);
    });
    world.finish()
}

struct World {
    link: UdpLink,
    honest: UdpLink,
    /// Of the three.
    addresses: [IpAddr; 3],
    now: Instant,
    connections: Vec<Connection>,
    made: usize,
    /// Has the hostile process's name.
    listener: OwnedFd,
    /// Has the name of the device's address, if the hostile process had it first.
    owner: Option<OwnedFd>,
    /// Sends UDP datagrams to the device from outside.
    outside: UdpSocket,
    /// It has written where processes see the address's owner, or was the owner.
    has_meddled: bool,
    /// Numbers of honest datagrams.
    sent: u32,
    received: u32,
    parked: u32,
    reach: Reach,
}

impl World {
    /// `None`: the hostile process has kept the device from its address.
    fn new(input: &mut Input<'_>) -> Option<Self> {
        let addresses = addresses();
        let [own, other, theirs] = addresses;
        let partition = 7;
        let bind = |address| {
            let locality = Locality::SharedAddress { partition };
            UdpLink::bind(&[(address, 0)], locality, SocketOptions::default())
        };
        let mode = input.byte();
        let (link, owner) = if mode < 192 {
            (bind(own).ok()?, None)
        } else {
            let owner = hostile::listen(own, None);
            let script = input.bytes(12).to_vec();
            thread::scope(|scope| {
                let granting = scope.spawn(|| hostile::grant(&owner, &script, own));
                let link = bind(own);
                granting.join().unwrap()?;
                link.ok()
            })
            .map(|link| (link, Some(owner)))?
        };
        Some(Self {
            link,
            honest: bind(other).unwrap(),
            addresses,
            now: Instant::from_nanos(1),
            connections: Vec::new(),
            made: 0,
            listener: hostile::listen(theirs, Some(THEIRS)),
            owner,
            outside: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
            has_meddled: mode >= 192,
            sent: 0,
            received: 0,
            parked: 0,
            reach: Reach::default(),
        })
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        match what % 16 {
            0 if self.connections.len() < MAX_CONNECTIONS => {
                // two to the device, two to its address's receiver, and so on
                let direct = self.partition().filter(|_| (self.made / 2).is_multiple_of(2));
                self.made += 1;
                let connected = hostile::connect(self.addresses[0], direct);
                self.connections.extend(connected.map(Connection::new));
            }
            1 => self.with(input, |connection, input| connection.greet(input)),
            2 => {
                let index = usize::from(input.byte());
                if !self.connections.is_empty() {
                    let index = index % self.connections.len();
                    self.connections.swap_remove(index);
                }
            }
            3 => self.with(input, |connection, input| connection.write_word(input)),
            4 | 5 => self.with(input, |connection, input| connection.push_run(input)),
            6 => self.with(input, |connection, input| {
                let length = usize::from(input.byte());
                connection.say(input.bytes(length), &[]);
            }),
            7 => self.with(input, |connection, input| {
                let partition = input.byte();
                connection.say(&hostile::here(partition), &[]);
            }),
            8 => self.take_grants(),
            9 => self.meddle(input),
            10 => self.outside(input),
            11 => self.send_to_hostile(input),
            12 => self.accept(input),
            13 => self.share(input),
            _ => self.now = self.now.plus(Duration::from_micros(1 << (input.byte() % 22))),
        }
        self.exchange();
    }

    fn with(&mut self, input: &mut Input<'_>, act: impl FnOnce(&mut Connection, &mut Input<'_>)) {
        let index = usize::from(input.byte());
        if !self.connections.is_empty() {
            let index = index % self.connections.len();
            act(&mut self.connections[index], input);
        }
    }

    fn take_grants(&mut self) {
        for connection in &mut self.connections {
            let descriptors = connection.take();
            self.reach.granted += descriptors.len();
            connection.granted.extend(descriptors.into_iter().map(File::from));
        }
    }

    /// Positions of the device's ring, or the terms of the address's owners.
    fn meddle(&mut self, input: &mut Input<'_>) {
        let (which, at, value) = (input.byte(), input.byte(), u64::from_le_bytes(input.array()));
        let granted = self.connections.iter().flat_map(|connection| &connection.granted);
        let files: Vec<_> = granted.collect();
        let Some(file) = files.get(usize::from(which) % files.len().max(1)) else { return };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        self.has_meddled |= length != RING_SIZE;
        hostile::write_word(file, u64::from(at % 24) * 8, value);
    }

    /// To a queue pair of any partition, or any bytes.
    fn outside(&mut self, input: &mut Input<'_>) {
        let (length, partition) = (usize::from(input.byte()), input.byte());
        let partition = IdPartition::new(1 + partition % IdPartition::COUNT);
        let mut packet = vec![4, 0x40, 0xFF, 0xFF];
        packet.extend(partition.map_or(0, |partition| *partition.qpns().start()).to_be_bytes());
        packet.resize(16 + 4 * length, 0);
        let payload = if length < 200 { &packet[..] } else { input.bytes(length) };
        let _ = self.outside.send_to(payload, (self.addresses[0], 4791));
    }

    fn send_to_hostile(&mut self, input: &mut Input<'_>) {
        let [own, _, theirs] = self.addresses;
        let segment = 1 + usize::from(input.byte()) * 16;
        let bytes = vec![THEIRS << 2; segment * (1 + usize::from(input.byte()) % 16)];
        for _ in 0..1 + input.byte() % 64 {
            let _ = self.link.send(self.now, &bytes, &[run([own, theirs], segment, bytes.len())]);
        }
    }

    fn accept(&mut self, input: &mut Input<'_>) {
        if let Some(socket) = self.owner.as_ref().and_then(hostile::accept) {
            let mut connection = Connection::new(socket);
            connection.offer(input);
            self.connections.push(connection);
        }
        let Some(socket) = hostile::accept(&self.listener) else { return };
        let mut connection = Connection::new(socket);
        connection.granted.extend(connection.take().into_iter().map(File::from));
        self.reach.granted += connection.granted.len();
        connection.response(input);
        if self.connections.len() < MAX_CONNECTIONS {
            self.connections.push(connection);
        }
    }

    fn share(&mut self, input: &mut Input<'_>) {
        let (what, service) = (input.byte(), ServiceId(u64::from(input.byte())));
        let address = self.addresses[0];
        match what % 5 {
            0 => {
                self.link.park();
                self.parked += 1;
            }
            1 if self.parked > 0 => {
                self.link.unpark();
                self.parked -= 1;
            }
            what => {
                let Some(sharing) = self.link.sharing() else { return };
                match what {
                    2 => drop(sharing.claim(service, address)),
                    3 => sharing.release(service, address),
                    _ => drop(sharing.is_claimed(service, address)),
                }
            }
        }
    }

    fn partition(&mut self) -> Option<u8> {
        self.link.sharing()?.partition().map(IdPartition::get)
    }

    fn exchange(&mut self) {
        let [own, other, _] = self.addresses;
        let qpn = [0, self.partition().unwrap_or_default() << 2, 0, 0];
        let payload = [HONEST, qpn, self.sent.to_le_bytes()].concat();
        let sent = self.honest.send(self.now, &payload, &[run([other, own], 12, 12)]);
        self.sent += u32::from(sent.is_ok_and(|taken| taken == 1));
        self.receive();
        let _ = self.honest.receive(self.now, &mut |_| {});
        self.now = self.now.plus(Duration::from_micros(100));
    }

    fn receive(&mut self) {
        let [own, other, _] = self.addresses;
        let Self { received, reach, has_meddled, sent, .. } = self;
        let mut sink = |datagram: &Datagram<'_>| {
            assert_eq!(datagram.net.dst, own);
            assert!(datagram.bytes.len() <= 65_536);
            let Some(number) = honest_number(datagram, other) else {
                reach.received += 1;
                return;
            };
            reach.honest += 1;
            assert!(number < *sent || *has_meddled);
            assert!(number == *received || *has_meddled, "{number} instead of {received}");
            *received = number + 1;
        };
        // errors come from sockets granted by a hostile owner
        let result = self.link.receive(self.now, &mut sink);
        assert!(result.is_ok() || self.has_meddled, "{result:?}");
    }

    fn finish(mut self) -> Reach {
        for _ in 0..40 {
            self.exchange();
        }
        for _ in 0..8 {
            self.receive();
        }
        let lost = self.sent - self.received.min(self.sent);
        assert!(lost == 0 || self.has_meddled, "{lost} of {} honest datagrams are lost", self.sent);
        let sharing = self.link.sharing();
        self.reach.forwarded = sharing.map_or(0, |sharing| sharing.forwarded());
        self.reach
    }
}

/// The hostile process can forge it, but not its address.
fn honest_number(datagram: &Datagram<'_>, other: IpAddr) -> Option<u32> {
    let (&HONEST, number) = datagram.bytes.split_first_chunk()? else { return None };
    (datagram.net.src == other).then_some(())?;
    number.get(4..)?.try_into().ok().map(u32::from_le_bytes)
}

fn run([src, dst]: [IpAddr; 2], segment: usize, length: usize) -> Transmit {
    let range = 0..length;
    Transmit {
        src,
        dst,
        src_port: 4791,
        traffic_class: 0,
        hop_limit: 64,
        segment,
        range,
        frame: FrameFields::default(),
    }
}

fn addresses() -> [IpAddr; 3] {
    let [.., high, low] = std::process::id().to_be_bytes();
    [1, 2, 3].map(|host| Ipv4Addr::new(127, 128 | high, low, host).into())
}
