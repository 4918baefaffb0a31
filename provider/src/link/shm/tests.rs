//! Devices of one process stand for those of several.

use std::{
    net::{Ipv4Addr, UdpSocket},
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    thread,
};

use roce_transport::{
    adapter::Transmit,
    addr::ROCE_UDP_PORT,
    cm::{About, CmMad, Message, PrivateData, Rej, RejectReason, Req, Rtu},
    share::Addressee,
    wire::{FrameFields, ICRC_LEN, Ident},
};
use rustix::net::SendFlags;
use socket2::Socket;

use super::{
    listener::{
        ACCEPT_BATCH, HELLO_RING, HELLO_RING_LEN, MAX_PENDING, PENDING_TIMEOUT, request_grant,
    },
    socket::{connect, is_closed, receive_with},
    *,
};
use crate::{
    bind::BindError,
    link::{DatagramMeta, rings::Writer},
};

mod ended;
mod members;
mod stopped;
mod strangers;
mod trust;

/// Addresses that nothing else uses: the tests of one process have a network of their own each.
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

fn device(address: IpAddr) -> ShmLink {
    let mut link = ShmLink::new(Sharing::None).unwrap();
    link.listeners.listen(&link.epoll, address, 0).unwrap();
    link
}

/// Two devices, of which the first reaches the second; and the time then.
fn pair() -> (ShmLink, ShmLink, [IpAddr; 2]) {
    let [src, dst] = addresses();
    let (mut a, mut b) = (device(src), device(dst));
    assert!(!a.reaches(at(0), src, dst, 0));
    b.attend(at(0));
    a.attend(at(0));
    assert!(a.reaches(at(1), src, dst, 0));
    (a, b, [src, dst])
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

/// Everything that has arrived: source, place in its run, bytes.
fn take(link: &mut ShmLink) -> Vec<(IpAddr, u16, Vec<u8>)> {
    let mut taken = Vec::new();
    let mut sink = |arrived: &Datagram<'_>| {
        let Ident::Known { id, dont_fragment: true } = arrived.net.ident else {
            panic!("{arrived:?}")
        };
        assert_eq!((arrived.net.traffic_class, arrived.net.hop_limit), (0xB8, 64));
        taken.push((arrived.net.src, id, arrived.bytes.to_vec()));
    };
    while link.receive(at(0), &mut |run| run.for_each(&mut sink)) > 0 {}
    taken
}

/// True if a datagram that has arrived was for another process, and is on its way there.
fn is_forwarded(link: &mut ShmLink, datagram: &Datagram<'_>) -> bool {
    let mut is_own = false;
    link.forward_run(&(*datagram).into(), &mut |_| is_own = true);
    !is_own
}

#[test]
fn packets_take_the_channel_once_it_is_open() {
    let (mut a, mut b, ends) = pair();
    let [src, _] = ends;
    assert!(!b.is_settled());
    a.send(at(2), b"abcdefgh", &[run(ends, 3, 0..8), run(ends, 100, 2..4)]).unwrap().unwrap();
    assert_eq!(
        take(&mut b),
        [
            (src, 0, b"abc".into()),
            (src, 1, b"def".into()),
            (src, 2, b"gh".into()),
            (src, 0, b"cd".into())
        ]
    );
    assert!(b.is_settled());
    assert_eq!(a.shared_runs(), 2);
    // what the sender trusted for the receiver is told
    for checksum_verified in [false, true] {
        a.send(at(2), b"abc", &[run(ends, 3, 0..3)]).unwrap().unwrap();
        let mut told = None;
        b.receive(at(2), &mut |arrived| told = Some(arrived.meta.checksum_verified));
        assert_eq!(told, Some(checksum_verified));
        a.set_trusted();
    }
    // the other direction is a channel of its own
    let [there, back] = [ends[1], ends[0]];
    assert!(!b.reaches(at(3), there, back, 0));
}

#[test]
fn an_absent_device_is_asked_again_later() {
    let [src, dst] = addresses();
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
    assert!(!a.reaches(at(0), src, [239, 1, 1, 1].into(), 0), "a group has no channel");
}

#[test]
fn the_end_of_a_process_is_noticed_and_what_it_sent_before_is_received() {
    let (mut a, mut b, ends) = pair();
    let [src, dst] = ends;
    a.send(at(2), b"last words", &[run(ends, 10, 0..10)]).unwrap().unwrap();
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
    let (mut a, mut b, ends) = pair();
    let bytes: Vec<u8> = (0..60_000).map(|index| index as u8).collect();
    let whole = run(ends, 60_000, 0..60_000);
    for _ in 0..60 {
        a.send(at(2), &bytes, std::slice::from_ref(&whole)).unwrap().unwrap();
    }
    let first = run(ends, 60_000, 0..7);
    a.send(at(3), &bytes, std::slice::from_ref(&first)).unwrap().unwrap();
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
    // and what is never read is lost in the end, not kept
    let kept = (0..1000)
        .take_while(|_| a.send(at(now), &bytes, std::slice::from_ref(&whole)).unwrap().is_ok())
        .count();
    assert!((200..400).contains(&kept), "{kept}");
}

#[test]
fn a_sleeper_is_woken() {
    let (mut a, mut b, ends) = pair();
    let is_readable = |link: &ShmLink| crate::readiness::is_readable(link.descriptor());
    let mut send = || a.send(at(2), b"x", &[run(ends, 1, 0..1)]).unwrap().unwrap();
    send();
    assert!(!is_readable(&b), "it polls");
    assert!(!b.park(), "there is something already");
    b.unpark();
    take(&mut b);
    assert!(b.park());
    assert!(!is_readable(&b));
    send();
    assert!(is_readable(&b));
    // another thread takes it, and the sleeper sleeps on
    b.attend(at(3));
    assert_eq!(take(&mut b).len(), 1);
    assert!(!is_readable(&b));
    send();
    assert!(is_readable(&b));
    b.unpark();
    b.attend(at(4));
    assert_eq!(take(&mut b).len(), 1);
    send();
    assert!(!is_readable(&b), "it polls again");
}

#[test]
fn a_hello_that_makes_no_sense_is_refused() {
    let [src, dst] = addresses();
    let mut b = device(dst);
    let connect = || connect(dst, 0).unwrap();
    let nothing = connect();
    let words = connect();
    rustix::net::send(&words, b"roce", SendFlags::empty()).unwrap();
    let (other_version, no_ring) = (connect(), connect());
    let mut hello = [0; HELLO_RING_LEN];
    hello[..8].copy_from_slice(&HELLO_RING);
    send_with(&no_ring, &hello, &[nothing.as_fd()]).unwrap();
    let (_writer, memory) = Writer::new().unwrap();
    hello[7] += 1;
    send_with(&other_version, &hello, &[memory.as_fd()]).unwrap();
    b.attend(at(0));
    assert_eq!((b.incoming.len(), b.listeners.counts().1), (0, 1));
    drop(nothing);
    b.attend(at(2000));
    assert_eq!((b.incoming.len(), b.listeners.counts().1), (0, 0));
    // and still it is there for others
    let mut a = device(src);
    a.reaches(at(4000), src, dst, 0);
    b.attend(at(4000));
    a.attend(at(4000));
    assert!(a.reaches(at(4001), src, dst, 0));
}

/// Connects so often without saying anything, and has the link look at it all, from this time on.
fn crowd(link: &mut ShmLink, address: IpAddr, number: usize, from: u64) -> (Vec<OwnedFd>, u64) {
    let crowd: Vec<_> = (0..number).map(|_| connect(address, 0).unwrap()).collect();
    let mut now = from;
    for _ in (0..number).step_by(ACCEPT_BATCH) {
        link.attend(at(now));
        now += 1000;
    }
    (crowd, now)
}

#[test]
fn processes_that_connect_and_say_nothing_keep_nobody_out() {
    let [src, dst] = addresses();
    let mut b = device(dst);
    let (silent, now) = crowd(&mut b, dst, MAX_PENDING + 10, 0);
    assert_eq!(b.listeners.counts().1, MAX_PENDING);
    let is_refused = |socket: &OwnedFd| is_closed(socket);
    assert_eq!(silent.iter().filter(|socket| is_refused(socket)).count(), 10);
    assert!(silent[..10].iter().all(is_refused), "those that were silent for longest");
    let mut a = device(src);
    a.reaches(at(now), src, dst, 0);
    b.attend(at(now));
    a.attend(at(now));
    assert!(a.reaches(at(now + 1), src, dst, 0));
    // what they hold is given back in time, whether or not anything else happens
    let timeout = PENDING_TIMEOUT.as_micros() as u64;
    assert!(b.deadline().is_some_and(|due| due <= at(now + timeout)));
    b.park();
    b.unpark();
    b.attend(at(now + timeout));
    assert_eq!((b.listeners.counts().1, b.deadline()), (0, None));
    assert!(silent.iter().all(is_refused));
}

#[test]
fn few_connections_are_looked_at_in_one_go() {
    let [_, dst] = addresses();
    let mut b = device(dst);
    let _crowd: Vec<_> = (0..3 * ACCEPT_BATCH).map(|_| connect(dst, 0).unwrap()).collect();
    for round in 1..=3 {
        b.attend(at(1000 * round as u64));
        assert_eq!(b.listeners.counts().1, round * ACCEPT_BATCH);
    }
}

#[test]
fn an_address_that_goes_takes_its_channels_with_it() {
    let (mut a, mut b, [src, dst]) = pair();
    b.forget(dst);
    assert!(b.incoming.is_empty() && b.listeners.counts().0 == 0);
    a.attend(at(2000));
    assert!(!a.reaches(at(2001), src, dst, 0));
    a.forget(src);
    assert!(a.outgoing.is_empty());
}

/// Any UDP socket stands for the one of the address. No socket can be beside it.
fn udp() -> MakeSocket {
    Arc::new(
        |beside| {
            if beside { taken()(beside) } else { Ok(UdpSocket::bind("127.0.0.1:0")?.into()) }
        },
    )
}

/// There can be no socket.
fn taken() -> MakeSocket {
    Arc::new(|_| Err(io::ErrorKind::AddrInUse.into()))
}

fn owner(address: IpAddr) -> ShmLink {
    let mut link = ShmLink::new(Sharing::All).unwrap();
    link.acquire(address, 0, false, &udp()).unwrap();
    link.choose_partition(7).unwrap();
    link
}

/// Has a process serve, from this time on in microseconds, while another one does something that may
/// wait for it.
fn while_it_serves<T>(server: &mut ShmLink, from: u64, act: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for now in (from..).step_by(1000).take_while(|_| !done.load(Ordering::SeqCst)) {
                server.look_at = Instant::ZERO;
                server.attend(at(now));
                thread::yield_now();
            }
        });
        let acted = act();
        done.store(true, Ordering::SeqCst);
        acted
    })
}

/// One more at the address that `owner` has.
fn peer(owner: &mut ShmLink, address: IpAddr) -> Result<ShmLink, BindError> {
    let mut link = ShmLink::new(Sharing::All).unwrap();
    while_it_serves(owner, 0, || link.acquire(address, 0, false, &taken()))?;
    link.choose_partition(7).unwrap();
    owner.park(); // has it look each time
    owner.attend(at(0));
    Ok(link)
}

fn net(dst: IpAddr) -> roce_transport::wire::NetHeader {
    let ident = Ident::Known { id: 0, dont_fragment: true };
    roce_transport::wire::NetHeader {
        src: [10, 0, 0, 9].into(),
        dst,
        src_port: 4791,
        traffic_class: 0xB8,
        hop_limit: 64,
        ident,
        frame: FrameFields::default(),
    }
}

/// The beginning of a packet to a queue pair with this partition.
fn packet(partition: IdPartition) -> Vec<u8> {
    [&[4, 0x40, 0xFF, 0xFF][..], &partition.qpns().start().to_be_bytes(), b"rest"].concat()
}

#[test]
fn a_datagram_is_forwarded_to_the_partition_that_it_is_for() {
    let [address, other] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let partitions = [&a, &b, &c].map(|each| each.partition().unwrap());
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
    a.flush(at(1));
    let free = IdPartition::all().find(|partition| !partitions.contains(partition)).unwrap();
    assert!(!is_forwarded(&mut a, &Datagram::new(&net, &packet(free))), "nobody has it");
    let elsewhere = roce_transport::wire::NetHeader { dst: other, ..net };
    assert!(
        !is_forwarded(&mut a, &Datagram::new(&elsewhere, &packets[1])),
        "they do not share that one"
    );
    assert_eq!(take(&mut b), [(net.src, 0, packets[1].clone())]);
    assert_eq!(take(&mut c), [(net.src, 0, packets[2].clone())]);
    assert_eq!(a.forwarded(), 2);
    // one that has ended is forwarded nothing
    drop(b);
    a.attend(at(2));
    assert!(!is_forwarded(&mut a, &Datagram::new(&net, &packets[1])));
}

/// A request for a service.
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

/// A remote host that asks for whatever it likes has nobody look at each peer.
#[test]
fn requests_for_what_nobody_listens_for_cost_nothing_per_peer() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut peers: Vec<_> = (0..8).map(|_| peer(&mut a, address).unwrap()).collect();
    peers.iter().for_each(|_| a.unpark());
    a.attend(at(1000));
    let net = net(address);
    let flood = |a: &mut ShmLink| {
        let before = a.addresses.peers.looks;
        for number in 0..1000 {
            let bytes = request(ServiceId(number));
            assert!(!is_forwarded(a, &Datagram::new(&net, &bytes)));
        }
        a.addresses.peers.looks - before
    };
    a.attend(at(1001));
    assert_eq!(flood(&mut a), 0);
    // what one has just begun to listen for is found, in this round and in the next
    let asks = |a: &mut ShmLink, service| {
        is_forwarded(a, &Datagram::new(&net, &request(ServiceId(service))))
    };
    peers[3].claim(ServiceId(5000), address).unwrap();
    assert!(asks(&mut a, 5000));
    a.attend(at(1002));
    peers[4].claim(ServiceId(5001), address).unwrap();
    let before = a.addresses.peers.looks;
    assert!(asks(&mut a, 5001) && asks(&mut a, 5000));
    assert_eq!(a.addresses.peers.looks - before, peers.len());
    assert!(!a.has_waiting());
    a.flush(at(1003));
    assert_eq!([3, 4].map(|index: usize| take(&mut peers[index]).len()), [2, 1]);
    // connections that are just made are news in every round, and are looked at once in it
    let _crowd: Vec<_> = (0..3).map(|_| connect(address, 0).unwrap()).collect();
    a.attend(at(1004));
    assert_eq!(flood(&mut a), peers.len());
}

/// Processes that ask for an address, and then neither say which partition they have nor stop saying
/// it, keep no other from it.
#[test]
fn peers_that_misbehave_are_bounded() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let silent = ShmLink::new(Sharing::All).unwrap();
    let request = || request_grant(&silent.epoll, &silent.wakeup, address, 0).unwrap();
    let mut sockets = Vec::new();
    for now in 0..2 * u64::from(IdPartition::COUNT) + 10 {
        sockets.push(request());
        a.attend(at(1000 * now));
    }
    let are_connected = |sockets: &[OwnedFd]| {
        let is_open =
            |socket: &&OwnedFd| receive_with(socket, &mut [0; 8]).is_ok_and(|(n, _)| n > 0);
        let first = sockets.iter().filter(is_open).count(); // the grant
        let open = sockets.iter().filter(|socket| !is_closed(socket)).count();
        (first, open)
    };
    let most = 2 * usize::from(IdPartition::COUNT);
    assert_eq!(are_connected(&sockets), (most + 10, most));
    let flood = sockets.pop().unwrap();
    while send_with(&flood, &[9], &[]).is_ok() {}
    let start = std::time::Instant::now();
    a.attend(at(1_000_000));
    assert!(send_with(&flood, &[9], &[]).is_ok(), "some are read");
    while send_with(&flood, &[9], &[]).is_ok() {}
    assert!(start.elapsed() < Duration::from_secs(10));
    a.park();
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

/// A message of connection management, in a packet to QP1.
fn message(message: Message) -> Vec<u8> {
    let bth = [0x64, 0, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0];
    let deth = [0x80, 1, 0, 0, 0, 0, 0, 1];
    [&bth[..], &deth, &CmMad::new(1, message).encode(), &[0; ICRC_LEN]].concat()
}

/// Its sender names no number of the receiver's.
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
    a.flush(at(1));
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
    let partitions = [&b, &c].map(|each| each.partition().unwrap());
    b.park();
    c.park();
    drop(a);
    b.attend(at(10));
    assert!(!b.is_peer(address));
    for now in [20, 30, 40] {
        c.attend(at(now));
        b.attend(at(now));
    }
    assert!(c.is_peer(address));
    assert_eq!([&b, &c].map(|each| each.listeners.counts().0), [1, 1], "one name each");
    assert_eq!([&b, &c].map(|each| each.partition().unwrap()), partitions);
    let bytes = packet(partitions[1]);
    assert!(is_forwarded(&mut b, &Datagram::new(&net(address), &bytes)));
    b.flush(at(50));
    assert_eq!(take(&mut c).len(), 1);
    // one that comes now finds the new owner, and no partition twice
    let d = peer(&mut b, address).unwrap();
    assert!(!partitions.contains(&d.partition().unwrap()));
    // the last one is left alone
    drop((b, d));
    c.attend(at(60));
    c.attend(at(2060));
    assert!(!c.is_peer(address));
}

/// What the owner has read for a process that has not come to it yet is what it waits for before it ends.
#[test]
fn a_datagram_waits_for_the_process_that_it_is_for() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let bytes = packet(c.partition().unwrap());
    b.park();
    c.park();
    drop(a);
    b.attend(at(10));
    assert!(!b.is_peer(address) && !b.has_waiting());
    // one that came through shared memory may have no ICRC, and stays marked as verified
    let meta = DatagramMeta { checksum_verified: true, ..DatagramMeta::default() };
    let datagram = Datagram { net: &net(address), bytes: &bytes, meta };
    assert!(is_forwarded(&mut b, &datagram) && b.has_waiting());
    for now in [20, 30, 40] {
        c.attend(at(now));
        b.attend(at(now));
    }
    assert!(!b.has_waiting());
    b.flush(at(50));
    let mut taken = Vec::new();
    c.receive(at(50), &mut |datagram| taken.push(datagram.meta));
    assert_eq!(taken, [meta]);
    // nobody waits for one that has ended
    drop(c);
    b.attend(at(60));
    assert!(!is_forwarded(&mut b, &Datagram::new(&net(address), &bytes)) && !b.has_waiting());
}

#[test]
fn as_many_share_an_address_as_there_are_partitions() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut others: Vec<_> =
        (1..IdPartition::COUNT).map(|_| peer(&mut a, address).unwrap()).collect();
    let mut partitions: Vec<_> =
        others.iter().map(|other| other.partition().unwrap()).chain(a.partition()).collect();
    partitions.sort();
    partitions.dedup();
    assert_eq!(partitions.len(), usize::from(IdPartition::COUNT));
    let one = others.remove(20);
    let partition = one.partition();
    drop(one);
    a.attend(at(5000));
    assert_eq!(peer(&mut a, address).unwrap().partition(), partition);
}

/// A process that has only taken the name does not keep others from the address.
#[test]
fn a_name_alone_is_no_address() {
    let [address, _] = addresses();
    let name = socket::listen(address, 0).unwrap();
    let squat = || {
        let mut a = ShmLink::new(Sharing::All).unwrap();
        a.acquire(address, 0, false, &udp()).unwrap();
        a.choose_partition(7).unwrap();
        a.partition()
    };
    assert_eq!(squat(), None, "the owner does not answer");
    drop(name);
    assert!(squat().is_some());
}

/// On a busy machine it takes a while until one process has ended and another has taken over.
#[test]
fn an_address_may_take_long_to_pass_on() {
    let [address, _] = addresses();
    let name = socket::listen(address, 0).unwrap();
    let mut a = ShmLink::new(Sharing::All).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                drop(rustix::net::accept(&name)); // says nothing, and goes
            }
            drop(name);
        });
        a.acquire(address, 0, false, &udp()).unwrap();
    });
    a.choose_partition(7).unwrap();
    assert!(a.partition().is_some());
}

#[test]
fn a_device_that_does_not_share_refuses_at_once() {
    let [address, _] = addresses();
    let mut a = ShmLink::new(Sharing::None).unwrap();
    a.acquire(address, 0, false, &udp()).unwrap();
    assert_eq!(a.partition(), None);
    assert!(matches!(peer(&mut a, address), Err(BindError::Taken(_))));
}

/// Of several processes at an address each has a channel from those that send to it, besides the one
/// to the process that receives for all.
#[test]
fn processes_that_share_an_address_have_channels_of_their_own() {
    let [address, other] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let mut far = owner(other);
    let partitions = [&a, &b, &c].map(|each| each.partition().unwrap());
    let packets = partitions.map(packet);
    let length = packets[0].len();
    let bytes = packets.concat();
    let serve = |links: [&mut ShmLink; 3], now: u64| {
        for link in links {
            link.look_at = Instant::ZERO;
            link.attend(at(now));
        }
    };
    for src in [other, address] {
        let ends = [src, address];
        let run_of = |from: usize, to: usize| run(ends, length, from * length..to * length);
        let sender = if src == other { &mut far } else { &mut b };
        sender.reaches(at(1), src, address, 0);
        let mut time = 1;
        let mut send =
            |sender: &mut ShmLink, a: &mut ShmLink, c: &mut ShmLink, runs: &[Transmit]| {
                time += 1000;
                let sent = sender.send(at(time), &bytes, runs);
                for _ in 0..4 {
                    serve([&mut *sender, a, c], time);
                }
                sent
            };
        // the first ones find no channel but that of the address, and ask for others
        send(sender, &mut a, &mut c, &[run_of(2, 3)]);
        send(sender, &mut a, &mut c, &[run_of(2, 3)]);
        send(sender, &mut a, &mut c, &[run_of(2, 3)]);
        take(&mut a);
        take(&mut c);
        let before = a.forwarded();
        send(sender, &mut a, &mut c, &[run_of(2, 3), run_of(0, 1), run_of(2, 3)]).unwrap().unwrap();
        let taken = take(&mut c);
        assert_eq!(taken.len(), 2, "{src}");
        assert!(taken.iter().all(|(from, _, datagram)| *from == src && *datagram == packets[2]));
        take(&mut a);
        assert_eq!(a.forwarded(), before, "by no other process");
        // a run for several goes to each
        send(sender, &mut a, &mut c, &[run_of(0, 3)]).unwrap().unwrap();
        assert_eq!(take(&mut c), [(src, 0, packets[2].clone())]);
    }
}

/// What goes by a process's own channel does not overtake what went by the other before.
#[test]
fn nothing_is_overtaken() {
    let [address, src] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let mut sender = device(src);
    sender.reaches(at(0), src, address, 0);
    a.attend(at(0));
    sender.attend(at(0));
    let bytes = packet(b.partition().unwrap());
    let send_to = |sender: &mut ShmLink, bytes: &[u8], now, number: u8| {
        let bytes = [bytes, &[number]].concat();
        let all = run([src, address], bytes.len(), 0..bytes.len());
        sender.send(at(now), &bytes, &[all]).unwrap().unwrap();
    };
    let send = |sender: &mut ShmLink, now, number| send_to(sender, &bytes, now, number);
    let numbers = |link: &mut ShmLink| -> Vec<u8> {
        take(link).iter().map(|(.., datagram)| *datagram.last().unwrap()).collect()
    };
    send(&mut sender, 1, 1); // asks for a channel, too
    b.park();
    b.attend(at(2));
    sender.look_at = Instant::ZERO;
    sender.attend(at(2));
    let key = (src, address);
    assert!(sender.outgoing.get_mut(&key).unwrap().open().count() == 2);
    send(&mut sender, 3, 2);
    assert_eq!(numbers(&mut b), [0; 0]);
    assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![], vec![1, 2]));
    send(&mut sender, 4, 3);
    assert_eq!((numbers(&mut b), a.forwarded()), (vec![3], 2));
    // the owner that reads nothing does not hold up another for ever
    let mut c = peer(&mut a, address).unwrap();
    let bytes = packet(c.partition().unwrap());
    send_to(&mut sender, &bytes, 5, 4);
    c.park();
    c.attend(at(6));
    sender.look_at = Instant::ZERO;
    sender.attend(at(6));
    for (now, number) in [(7, 5), (99_000, 6)] {
        send_to(&mut sender, &bytes, now, number);
        assert_eq!(numbers(&mut c), [0; 0]);
    }
    send_to(&mut sender, &bytes, 101_000, 7);
    assert_eq!(numbers(&mut c), [7]);
}
