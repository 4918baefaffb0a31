//! Processes that are stopped, by a signal or in a debugger: devices that nobody serves any more.

use super::*;
use crate::link::rings::SILENCE;

/// A time in milliseconds.
fn ms(millis: u64) -> Instant {
    at(1000 * millis)
}

const SILENT: u64 = SILENCE.as_millis() as u64;

/// The owner of an address, and its UDP socket.
fn owner_and_socket(address: IpAddr) -> (ShmLink, UdpSocket) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut link = ShmLink::new(Sharing::All).unwrap();
    let first = socket.try_clone().unwrap();
    let make_socket: MakeSocket =
        Arc::new(
            move |beside| {
                if beside { taken()(beside) } else { Ok(first.try_clone()?.into()) }
            },
        );
    link.acquire(address, 0, false, &make_socket).unwrap();
    link.choose_partition(7).unwrap();
    (link, socket)
}

/// Something arrives at the socket.
fn arrive(socket: &UdpSocket) {
    let to = socket.local_addr().unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", to).unwrap();
}

/// Serves all of them for this time; returns the time then, all in milliseconds.
fn serve(links: &mut [&mut ShmLink], from: u64, time: u64) -> u64 {
    for now in from..=from + time {
        links.iter_mut().for_each(|link| link.attend(ms(now)));
    }
    from + time
}

/// True if what is for this partition comes to `to` when it has arrived at `owner`.
fn forwards(owner: &mut ShmLink, to: &mut ShmLink, address: IpAddr) -> bool {
    let bytes = packet(to.partition().unwrap());
    assert!(is_forwarded(owner, &Datagram::new(&net(address), &bytes)));
    owner.flush(at(0));
    let taken = take(to);
    assert!(taken.len() <= 1);
    taken.iter().any(|(.., datagram)| *datagram == bytes)
}

#[test]
fn when_the_owner_is_stopped_a_peer_is_the_owner() {
    let [address, _] = addresses();
    let (mut a, socket) = owner_and_socket(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    a.unpark();
    a.unpark();
    let partitions = [&a, &b, &c].map(|each| each.partition().unwrap());
    // nobody is in the way as long as nothing arrives
    let mut now = serve(&mut [&mut b, &mut c], 0, 5 * SILENT);
    assert!(b.is_peer(address) && b.deadline().is_none());
    // nor if the owner goes on
    arrive(&socket);
    now = serve(&mut [&mut a, &mut b, &mut c], now, 5 * SILENT);
    assert!(b.is_peer(address) && c.is_peer(address));
    // nor if all of them are stopped
    arrive(&socket);
    now = serve(&mut [&mut b, &mut c], now, 10) + 10 * SILENT;
    now = serve(&mut [&mut b, &mut c, &mut a], now, 5 * SILENT);
    assert!(b.is_peer(address) && c.is_peer(address));
    // but when it does not
    now = serve(&mut [&mut b, &mut c], now, 2 * SILENT + 10);
    let (owner, other) = if b.is_peer(address) { (&mut c, &mut b) } else { (&mut b, &mut c) };
    assert!(!owner.is_peer(address) && other.is_peer(address));
    assert!(forwards(owner, other, address));
    owner.park(); // has it look each time
    let mut d = peer(owner, address).unwrap();
    owner.unpark();
    owner.unpark();
    assert!(!partitions.contains(&d.partition().unwrap()) && d.is_peer(address));
    assert!(forwards(owner, &mut d, address));
    // what is for the one that is stopped waits a moment, in case that it goes on
    let bytes = packet(partitions[0]);
    owner.attend(ms(now));
    assert!(is_forwarded(owner, &Datagram::new(&net(address), &bytes)));
    assert!(!a.is_peer(address));
    a.attend(ms(now));
    assert!(a.is_peer(address));
    serve(&mut [owner, &mut a], now, 20);
    assert_eq!(take(&mut a), [(net(address).src, 0, bytes)]);
    assert!(forwards(owner, &mut a, address));
    assert_eq!([&a, &*owner, &*other].map(|each| each.is_peer(address)), [true, false, true]);
}

/// A new process is let in although nothing arrives at the UDP socket.
#[test]
fn a_stopped_owner_keeps_no_process_from_the_address() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let mut c = ShmLink::new(Sharing::All).unwrap();
    let start = std::time::Instant::now();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                b.attend(Instant::ZERO.plus(start.elapsed()));
                thread::sleep(Duration::from_millis(1));
            }
        });
        c.acquire(address, 0, false, &taken()).unwrap();
        done.store(true, Ordering::SeqCst);
    });
    assert!(c.is_peer(address) && !b.is_peer(address));
    a.attend(at(0));
    assert!(a.is_peer(address));
}

/// What goes through memory goes to the next owner, and nothing comes twice.
#[test]
fn a_sender_goes_on_by_the_next_owner() {
    let [address, src] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    b.listeners.forget_direct(); // it would not need the owner
    a.unpark();
    let mut sender = device(src);
    assert!(!sender.reaches(ms(0), src, address, 0));
    a.attend(ms(0));
    sender.attend(ms(0));
    assert!(sender.reaches(ms(1), src, address, 0));
    let bytes = packet(b.partition().unwrap());
    let ends = [src, address];
    let send = |sender: &mut ShmLink, now, number: u8| {
        let bytes = [&bytes[..], &[number]].concat();
        sender.send(ms(now), &bytes, &[run(ends, bytes.len(), 0..bytes.len())]).unwrap().unwrap();
    };
    let numbers = |link: &mut ShmLink| -> Vec<u8> {
        take(link).iter().map(|(.., datagram)| *datagram.last().unwrap()).collect()
    };
    send(&mut sender, 1, 1);
    assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![], vec![1]));
    // the owner is slow, and goes on in time
    send(&mut sender, 2, 2);
    let mut now = serve(&mut [&mut sender, &mut b], 2, SILENT);
    assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![], vec![2]));
    assert!(b.is_peer(address));
    // it is stopped: what it has already, it keeps
    send(&mut sender, now, 3);
    now = serve(&mut [&mut sender, &mut b], now, 4 * SILENT);
    assert!(!b.is_peer(address));
    send(&mut sender, now, 4);
    assert_eq!(numbers(&mut b), [4]);
    // and what it forwards when it goes on is received once, although it is the owner no more
    a.attend(ms(now));
    assert!(a.is_peer(address));
    assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![], vec![3]));
    now = serve(&mut [&mut a, &mut b, &mut sender], now, 20);
    assert!(a.is_peer(address));
    send(&mut sender, now, 5);
    assert_eq!((numbers(&mut a), numbers(&mut b)), (vec![], vec![5]));
    assert_eq!(a.incoming.len(), 1, "what the sender has left is closed");
}

/// What goes to another process at the address goes on while the owner is stopped.
#[test]
fn a_stopped_owner_stops_nothing_that_does_not_go_by_it() {
    let [address, src] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let mut sender = device(src);
    let bytes = packet(b.partition().unwrap());
    let whole = run([src, address], bytes.len(), 0..bytes.len());
    sender.reaches(ms(0), src, address, 0);
    for now in 0..5 {
        serve(&mut [&mut sender, &mut a, &mut b], 10 * now, 5);
        let _ = sender.send(ms(10 * now + 6), &bytes, std::slice::from_ref(&whole));
    }
    take(&mut a);
    a.flush(ms(50));
    take(&mut b);
    for now in 0..4 * SILENT {
        sender.send(ms(60 + now), &bytes, std::slice::from_ref(&whole)).unwrap().unwrap();
        assert_eq!(take(&mut b).len(), 1);
        serve(&mut [&mut sender, &mut b], 60 + now, 0);
    }
    assert!(b.is_peer(address), "it has no reason to be the owner");
}

/// An owner that is stopped when it has just accepted a request has taken it with it.
#[test]
fn a_request_that_a_stopped_owner_has_accepted_is_made_again() {
    let [address, src] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let mut sender = device(src);
    assert!(!sender.reaches(ms(0), src, address, 0));
    a.attend(ms(0));
    sender.attend(ms(0));
    let bytes = packet(b.partition().unwrap());
    let whole = run([src, address], bytes.len(), 0..bytes.len());
    let send = |sender: &mut ShmLink, now| {
        sender.send(ms(now), &bytes, std::slice::from_ref(&whole)).unwrap().unwrap();
    };
    assert!(sender.reaches(ms(1), src, address, 0));
    send(&mut sender, 1);
    let mut now = serve(&mut [&mut sender], 1, SILENT);
    let accepted = a.listeners.accept_only();
    assert_eq!(accepted.len(), 1);
    now = serve(&mut [&mut sender, &mut b], now, 6 * SILENT);
    assert!(!b.is_peer(address));
    send(&mut sender, now);
    assert_eq!(take(&mut b).len(), 1);
}

#[test]
fn what_waits_for_a_process_waits_for_a_moment() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let b = peer(&mut a, address).unwrap();
    let partition = b.partition().unwrap();
    let bytes = packet(partition);
    // one that is no peer has the partition: the owner has changed, or it is stopped
    a.addresses.forget_peers(address);
    for now in 0..2000 {
        a.attend(ms(now));
        assert!(is_forwarded(&mut a, &Datagram::new(&net(address), &bytes)));
    }
    assert!((1..=256).contains(&a.addresses.waiting()));
    drop(b);
    a.attend(ms(2000));
    assert!(!is_forwarded(&mut a, &Datagram::new(&net(address), &bytes)), "nobody has it");
}

#[test]
fn a_reader_that_is_stopped_is_looked_at_less_often() {
    let (mut a, b, ends) = pair();
    let bytes = vec![0; 60_000];
    let whole = run(ends, 60_000, 0..60_000);
    for _ in 0..100 {
        a.send(at(2), &bytes, std::slice::from_ref(&whole)).unwrap().unwrap();
    }
    let mut looks = 0;
    let mut now = at(2);
    while now < ms(1000) {
        now = a.deadline().unwrap();
        a.attend(now);
        looks += 1;
    }
    assert!((100..1000).contains(&looks), "{looks}");
    // nor is it asked again and again
    let before = b.listeners.accept_only().len();
    while now < ms(10_000) {
        now = a.deadline().unwrap();
        a.attend(now);
    }
    let mut asked = 0;
    while asked < 100 && !b.listeners.accept_only().is_empty() {
        asked += 1;
    }
    assert!(before == 1 && (2..10).contains(&asked), "{before} and {asked}");
}
