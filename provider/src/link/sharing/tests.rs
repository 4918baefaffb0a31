//! Devices of one process stand in for several processes.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread,
    time::Duration,
};

use roce_transport::{
    adapter::Transmit,
    addr::ROCE_UDP_PORT,
    cm::{About, CmMad, Message, PrivateData, Rej, RejectReason, Req, Rtu, ServiceId},
    share::Addressee,
    wire::{FrameFields, ICRC_LEN, Ident, NetHeader},
};
use socket2::Socket;

use super::{
    names::{connect, of_address, of_process},
    *,
};
use crate::{
    bind::BindError,
    link::{Datagram, DatagramMeta, descriptors::receive_with, name::Name, rings::is_closed},
};

mod channels;
mod ended;
mod members;
mod stopped;
mod strangers;
mod trust;

/// Addresses that nothing else uses, on a network per test.
fn addresses() -> [IpAddr; 2] {
    static TESTS: AtomicU8 = AtomicU8::new(0);
    trust::prepare();
    let test = TESTS.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    [1, 2].map(|host| Ipv4Addr::new(240 | (test % 16), high, low, host + test / 16 * 2).into())
}

fn at(micros: u64) -> Instant {
    Instant::ZERO.plus(Duration::from_micros(micros))
}

fn ms(millis: u64) -> Instant {
    at(1000 * millis)
}

fn acquire_for(
    link: &mut Sharing,
    address: IpAddr,
    make_socket: &MakeSocket,
) -> Result<(), BindError> {
    let (_, acquired) = acquire(link.locality, (address, 0), false, make_socket)?;
    link.add(acquired).unwrap();
    Ok(())
}

fn device(address: IpAddr) -> Sharing {
    let mut link = Sharing::new(Locality::SharedMemory).unwrap();
    acquire_for(&mut link, address, &udp()).unwrap();
    link
}

const SHARED: Locality = Locality::SharedAddress { partition: 0 };

/// A datagram for no particular process.
const ANY: &[u8] = b"any";

/// Requests a channel if there is none.
fn reaches(link: &mut Sharing, now: Instant, ends: [IpAddr; 2], datagram: &[u8]) -> bool {
    link.reaches(now, datagram, &run(ends, datagram.len(), 0..datagram.len()), 0)
}

/// Opens a channel to the second link, which has all numbers.
fn meet(a: &mut Sharing, b: &mut Sharing, now: u64, ends: [IpAddr; 2]) {
    assert!(!reaches(a, at(now), ends, ANY));
    b.round(at(now));
    a.round(at(now));
    assert!(reaches(a, at(now + 1), ends, ANY));
}

fn pair() -> (Sharing, Sharing, [IpAddr; 2]) {
    let ends = addresses();
    let (mut a, mut b) = (device(ends[0]), device(ends[1]));
    meet(&mut a, &mut b, 0, ends);
    (a, b, ends)
}

fn run([src, dst]: [IpAddr; 2], segment: usize, range: Range<usize>) -> Transmit {
    Transmit {
        src,
        dst,
        src_port: ROCE_UDP_PORT,
        traffic_class: 0xB8,
        hop_limit: 64,
        segment,
        range,
        frame: FrameFields::default(),
    }
}

/// Arrivals: source, place in the run, bytes.
fn take(link: &mut Sharing) -> Vec<(IpAddr, u16, Vec<u8>)> {
    let mut taken = Vec::new();
    let mut sink = |arrived: &Datagram<'_>| {
        let Ident::Known { id, dont_fragment: true } = arrived.net.ident else {
            panic!("{arrived:?}")
        };
        assert_eq!((arrived.net.traffic_class, arrived.net.hop_limit), (0xB8, 64));
        taken.push((arrived.net.src, id, arrived.bytes.to_vec()));
    };
    while link.inbox.receive(&mut |run| run.for_each(&mut sink)) > 0 {}
    taken
}

/// True if the datagram was for another process, and is on its way.
fn is_forwarded(link: &mut Sharing, datagram: &Datagram<'_>) -> bool {
    let mut is_own = false;
    link.forward_run(at(0), &(*datagram).into(), &mut |_| is_own = true);
    !is_own
}

/// Any UDP socket stands in for the address's. No socket can share its port.
fn udp() -> MakeSocket {
    Arc::new(|reuse_port| match reuse_port {
        true => taken()(reuse_port),
        false => Ok(UdpSocket::bind("127.0.0.1:0")?.into()),
    })
}

fn taken() -> MakeSocket {
    Arc::new(|_| Err(io::ErrorKind::AddrInUse.into()))
}

fn owner(address: IpAddr) -> Sharing {
    owner_and_socket(address).0
}

fn owner_and_socket(address: IpAddr) -> (Sharing, UdpSocket) {
    owner_by(address, |_| Err(io::ErrorKind::AddrInUse.into()))
}

/// An owner, and the address's socket. The function makes member sockets.
fn owner_by(
    address: IpAddr,
    make_member: fn(SocketAddr) -> io::Result<Socket>,
) -> (Sharing, UdpSocket) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let (to, first) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
    let make_socket: MakeSocket = Arc::new(move |reuse_port| match reuse_port {
        true => make_member(to),
        false => Ok(first.try_clone()?.into()),
    });
    let mut link = Sharing::new(SHARED).unwrap();
    acquire_for(&mut link, address, &make_socket).unwrap();
    link.choose_partition(7).unwrap();
    (link, socket)
}

impl Sharing {
    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> Option<io::Result<usize>> {
        self.paths.send(now, bytes, runs, self.trusted)
    }

    fn round(&mut self, now: Instant) {
        self.look();
        self.attend(now);
    }
}

/// Runs a server from this time in microseconds while `act` may wait for it.
fn while_it_serves<T>(server: &mut Sharing, from: u64, act: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for now in (from..).step_by(1000).take_while(|_| !done.load(Ordering::SeqCst)) {
                server.round(at(now));
                thread::yield_now();
            }
        });
        let acted = act();
        done.store(true, Ordering::SeqCst);
        acted
    })
}

fn peer(owner: &mut Sharing, address: IpAddr) -> Result<Sharing, BindError> {
    let mut link = Sharing::new(SHARED).unwrap();
    while_it_serves(owner, 0, || acquire_for(&mut link, address, &taken()))?;
    link.choose_partition(7).unwrap();
    meet_owner(&mut link, owner, 0);
    Ok(link)
}

/// Finds the owner at this time in microseconds.
fn meet_owner(link: &mut Sharing, owner: &mut Sharing, now: u64) {
    link.round(at(now)); // asks
    owner.round(at(now));
    link.round(at(now)); // responds
    owner.round(at(now));
}

fn net(dst: IpAddr) -> NetHeader {
    let ident = Ident::Known { id: 0, dont_fragment: true };
    NetHeader {
        src: [10, 0, 0, 9].into(),
        dst,
        src_port: 4791,
        traffic_class: 0xB8,
        hop_limit: 64,
        ident,
        frame: FrameFields::default(),
    }
}

/// Start of a packet to a queue pair with this partition.
fn packet(partition: IdPartition) -> Vec<u8> {
    [&[4, 0x40, 0xFF, 0xFF][..], &partition.qpns().start().to_be_bytes(), b"rest"].concat()
}

#[test]
fn a_datagram_is_forwarded_to_the_partition_that_it_is_for() {
    let [address, other] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let partitions = [&a, &b, &c].map(|each| each.partition.unwrap());
    assert!(
        partitions[0] != partitions[1]
            && partitions[1] != partitions[2]
            && partitions[0] != partitions[2]
    );
    assert_eq!([&a, &b, &c].map(|each| each.is_peer(address)), [false, true, true]);
    let net = net(address);
    let packets = partitions.map(packet);
    assert_eq!(
        packets.each_ref().map(|bytes| is_forwarded(&mut a, &Datagram::new(&net, bytes))),
        [false, true, true]
    );
    let free = IdPartition::all().find(|partition| !partitions.contains(partition)).unwrap();
    assert!(!is_forwarded(&mut a, &Datagram::new(&net, &packet(free))), "nobody has it");
    let elsewhere = NetHeader { dst: other, ..net };
    assert!(
        !is_forwarded(&mut a, &Datagram::new(&elsewhere, &packets[1])),
        "they do not share that one"
    );
    assert_eq!(take(&mut b), [(net.src, 0, packets[1].clone())]);
    assert_eq!(take(&mut c), [(net.src, 0, packets[2].clone())]);
    assert_eq!(a.paths.forwarded, 2);
    // nothing is forwarded to an ended process
    drop(b);
    a.round(at(2));
    assert!(!is_forwarded(&mut a, &Datagram::new(&net, &packets[1])));
}

fn request(service: ServiceId) -> Vec<u8> {
    let rtu = Rtu { local_id: 0, remote_id: 0, private_data: PrivateData::default() };
    let mut mad = CmMad { transaction: 1, modifier: 0, message: Message::Rtu(rtu) }.encode();
    mad[17] = 0x17; // SIDR_REQ
    mad[32..40].copy_from_slice(&service.0.to_be_bytes());
    let base = [0x64, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0];
    let datagram = [0x80, 1, 0, 0, 0, 0, 0, 1];
    let bytes = [&base[..], &datagram, &mad, &[0; 4]].concat();
    assert_eq!(Addressee::of(&bytes), Addressee::Service(service));
    bytes
}

#[test]
fn requests_for_what_nobody_listens_for_cost_nothing_per_peer() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut peers: Vec<_> = (0..8).map(|_| peer(&mut a, address).unwrap()).collect();
    let net = net(address);
    let asks = |a: &mut Sharing, service| {
        is_forwarded(a, &Datagram::new(&net, &request(ServiceId(service))))
    };
    assert!((0..1000).all(|service| !asks(&mut a, service)));
    assert_eq!(a.paths.forwarded, 0);
    // a new listener is found at once, an ended listener is not found
    peers[3].claim(ServiceId(5), address).unwrap();
    assert!(asks(&mut a, 5) && !asks(&mut a, 6));
    peers[4].claim(ServiceId(6), address).unwrap();
    assert!(asks(&mut a, 6) && asks(&mut a, 5));
    peers[3].release(ServiceId(5), address);
    assert!(!asks(&mut a, 5));
    assert_eq!([3, 4].map(|index: usize| take(&mut peers[index]).len()), [2, 1]);
    for service in [7, 8, 9] {
        peers[5].claim(ServiceId(service), address).unwrap();
    }
    peers[5].release(ServiceId(7), address);
    assert!(!asks(&mut a, 7) && asks(&mut a, 8) && asks(&mut a, 9));
    drop(peers);
    assert!((0..10).all(|service| !asks(&mut a, service)));
}

/// Repeated requests keep no other process from the address.
#[test]
fn peers_that_misbehave_are_bounded() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut sockets = Vec::new();
    let mut now = 0;
    for round in 0..300 {
        let socket = connect(&of_address(address, 0)).unwrap();
        match round % 2 {
            0 => Hello::JoinAddress.send(&socket).unwrap(),
            _ => Hello::RegisterPeer(9).send(&socket).unwrap(),
        }
        sockets.push(socket);
        now += 1000;
        a.round(at(now));
    }
    let open = sockets.iter().filter(|socket| {
        while receive_with(socket, &mut [0; 32]).is_ok_and(|(length, _)| length > 0) {}
        !is_closed(socket)
    });
    assert_eq!(open.count(), 1, "the last that is to be forwarded to");
    assert!(peer(&mut a, address).unwrap().is_peer(address));
}

#[test]
fn a_service_belongs_to_one_process_at_an_address() {
    let [address, other] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let service = ServiceId(0x0106_1234);
    let is_in_use = |result: io::Result<()>| {
        result.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    b.claim(service, address).unwrap();
    assert!(is_in_use(a.claim(service, address)) && is_in_use(c.claim(service, address)));
    assert_eq!([&a, &b, &c].map(|each| each.is_claimed(service, address)), [true, false, true]);
    c.claim(service, other).unwrap();
    b.release(service, address);
    c.claim(service, address).unwrap();
    drop(c);
    a.claim(service, address).unwrap();
    assert!(is_in_use(b.claim(service, address)));
}

/// A CM message in a packet to QP1.
fn message(message: Message) -> Vec<u8> {
    let bth = [0x64, 0, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0];
    let deth = [0x80, 1, 0, 0, 0, 0, 0, 1];
    [&bth[..], &deth, &CmMad::new(1, message).encode(), &[0; ICRC_LEN]].concat()
}

/// The sender of the REJ knows no ID of the receiver.
#[test]
fn a_withdrawn_request_is_withdrawn_where_it_went() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let service = ServiceId(0x0106_1234);
    b.claim(service, address).unwrap();
    let guid = 5_u64;
    let req = Req { local_id: 9, local_ca_guid: guid, service_id: service, ..Req::default() };
    let request = message(Message::Req(Box::new(req)));
    let rej = Rej::new(9, 0, About::Other, RejectReason::TIMEOUT).with_info(&guid.to_be_bytes());
    let given_up = message(Message::Rej(Box::new(rej)));
    let net = net(address);
    assert!(!is_forwarded(&mut a, &Datagram::new(&net, &given_up)), "of no request");
    assert!(is_forwarded(&mut a, &Datagram::new(&net, &request)));
    assert!(is_forwarded(&mut a, &Datagram::new(&net, &given_up)));
    let taken = [&mut b, &mut c].map(|link| take(link).into_iter().map(|(.., bytes)| bytes));
    let [to_b, to_c] = taken.map(Vec::from_iter);
    assert_eq!(to_b, [request, given_up]);
    assert!(to_c.is_empty());
}

#[test]
fn when_the_owner_ends_one_of_the_peers_is_the_owner() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let partitions = [&b, &c].map(|each| each.partition.unwrap());
    drop(a);
    b.round(at(10));
    assert!(!b.is_peer(address));
    meet_owner(&mut c, &mut b, 3000);
    assert!(c.is_peer(address));
    assert_eq!(
        [&b, &c].map(|each| each.listeners.listeners.len()),
        [2, 1],
        "the address's is one's"
    );
    assert_eq!([&b, &c].map(|each| each.partition.unwrap()), partitions);
    let bytes = packet(partitions[1]);
    assert!(is_forwarded(&mut b, &Datagram::new(&net(address), &bytes)));
    assert_eq!(take(&mut c).len(), 1);
    // a new process finds the new owner
    let d = peer(&mut b, address).unwrap();
    assert!(!partitions.contains(&d.partition.unwrap()));
    // the last becomes the owner
    drop((b, d));
    c.round(at(4000));
    c.round(at(6000));
    assert!(!c.is_peer(address));
}

/// An owner forwards to processes that it has not met yet, and ends.
#[test]
fn a_datagram_outlives_the_process_that_forwarded_it() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let mut d = peer(&mut a, address).unwrap();
    let bytes = packet(c.partition.unwrap());
    drop(a);
    b.round(at(10));
    assert!(!b.is_peer(address));
    // a datagram from shared memory may have no ICRC: it stays marked as verified
    let meta = DatagramMeta { checksum_verified: true, ..DatagramMeta::default() };
    let datagram = Datagram { net: &net(address), bytes: &bytes, meta };
    assert!(is_forwarded(&mut b, &datagram));
    // d has asked, and the response is on its way
    d.round(at(10));
    b.round(at(10));
    let for_d = packet(d.partition.unwrap());
    assert!(is_forwarded(&mut b, &Datagram::new(&net(address), &for_d)));
    drop(b);
    for (process, is_verified) in [(&mut c, true), (&mut d, false)] {
        process.round(at(20));
        let mut taken = Vec::new();
        process.inbox.receive(&mut |datagram| taken.push(datagram.meta.checksum_verified));
        assert_eq!(taken, [is_verified]);
    }
    // nothing is forwarded to an ended process
    let (mut left, gone) = if c.is_peer(address) { (d, c) } else { (c, d) };
    let bytes = packet(gone.partition.unwrap());
    drop(gone);
    left.round(at(60));
    assert!(!is_forwarded(&mut left, &Datagram::new(&net(address), &bytes)));
}

#[test]
fn as_many_share_an_address_as_there_are_partitions() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut others: Vec<_> =
        (1..IdPartition::COUNT).map(|_| peer(&mut a, address).unwrap()).collect();
    let mut partitions: Vec<_> =
        others.iter().map(|other| other.partition.unwrap()).chain(a.partition).collect();
    partitions.sort();
    partitions.dedup();
    assert_eq!(partitions.len(), usize::from(IdPartition::COUNT));
    let one = others.remove(20);
    let partition = one.partition;
    drop(one);
    a.round(at(5000));
    assert_eq!(peer(&mut a, address).unwrap().partition, partition);
}

#[test]
fn a_name_alone_is_no_address() {
    let [address, _] = addresses();
    let name = names::listen(address, 0).unwrap();
    let squat = || {
        let mut a = Sharing::new(SHARED).unwrap();
        acquire_for(&mut a, address, &udp()).unwrap();
        a.choose_partition(7).unwrap();
        a.partition
    };
    assert_eq!(squat(), None, "the owner does not respond");
    drop(name);
    assert!(squat().is_some());
}

/// On a busy machine, end and takeover take a while.
#[test]
fn an_address_may_take_long_to_pass_on() {
    let [address, _] = addresses();
    let name = names::listen(address, 0).unwrap();
    let mut a = Sharing::new(SHARED).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                drop(rustix::net::accept(&name)); // closes without a grant
            }
            drop(name);
        });
        acquire_for(&mut a, address, &udp()).unwrap();
    });
    a.choose_partition(7).unwrap();
    assert!(a.partition.is_some());
}

#[test]
fn a_device_that_does_not_share_refuses_at_once() {
    let [address, _] = addresses();
    let mut a = Sharing::new(Locality::SharedMemory).unwrap();
    acquire_for(&mut a, address, &udp()).unwrap();
    assert_eq!(a.partition, None);
    assert!(matches!(peer(&mut a, address), Err(BindError::Taken(_))));
}

#[test]
fn processes_that_share_an_address_have_channels_of_their_own() {
    let [address, other] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let mut far = owner(other);
    let partitions = [&a, &b, &c].map(|each| each.partition.unwrap());
    let packets = partitions.map(packet);
    let length = packets[0].len();
    let bytes = packets.concat();
    for src in [other, address] {
        let run_of =
            |from: usize, to: usize| run([src, address], length, from * length..to * length);
        let sender = if src == other { &mut far } else { &mut b };
        for (now, (index, reader)) in (1000..).step_by(1000).zip([(0, &mut a), (2, &mut c)]) {
            assert!(!reaches(sender, at(now), [src, address], &packets[index]), "{src}");
            reader.round(at(now));
            sender.round(at(now));
            assert!(reaches(sender, at(now), [src, address], &packets[index]), "{src}");
        }
        let runs = [run_of(2, 3), run_of(0, 1), run_of(2, 3)];
        assert_eq!(sender.send(at(9000), &bytes, &runs).unwrap().unwrap(), 3);
        let taken = take(&mut c);
        assert_eq!(taken.len(), 2, "{src}");
        assert!(taken.iter().all(|(from, _, datagram)| *from == src && *datagram == packets[2]));
        assert_eq!(take(&mut a), [(src, 0, packets[0].clone())]);
        // a mixed run needs a channel to each process
        let mixed = [&packets[0][..], &packets[2], &packets[2]].concat();
        let whole = run([src, address], length, 0..mixed.len());
        sender.send(at(9001), &mixed, &[whole]).unwrap().unwrap();
        assert_eq!(take(&mut a).len(), 1);
        assert_eq!(take(&mut c).len(), 2);
        let free = IdPartition::all().find(|other| !partitions.contains(other)).unwrap();
        let nobodys = [&packets[0][..], &packet(free)].concat();
        let whole = run([src, address], length, 0..nobodys.len());
        assert!(sender.send(at(9002), &nobodys, &[whole]).is_none());
        assert_eq!((a.paths.forwarded, c.paths.forwarded), (0, 0), "by no other process");
        // other datagrams go to the owner
        assert!(!reaches(sender, at(9003), [src, address], &request(ServiceId(1))));
    }
}

/// The owner forwards to a process that cannot have its name.
#[test]
fn who_takes_the_names_of_processes_keeps_nothing_from_them() {
    let [address, src] = addresses();
    let take_name =
        |partition| Name::listen(of_process(address, 0, Some(partition)).as_bytes()).unwrap();
    let _held: Vec<_> = IdPartition::all().map(take_name).collect();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    assert_eq!([&a, &b].map(|each| each.listeners.listeners.len()), [1, 0]);
    let bytes = packet(b.partition.unwrap());
    assert!(!reaches(&mut owner(src), at(0), [src, address], &bytes));
    assert!(is_forwarded(&mut a, &Datagram::new(&net(address), &bytes)));
    assert_eq!(take(&mut b), [(net(address).src, 0, bytes)]);
}
