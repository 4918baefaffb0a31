//! Processes stopped by a signal or a debugger: devices that nobody serves.

use super::{
    super::{claim::Entry, shared_state::SILENCE},
    *,
};

const SILENT: u64 = SILENCE.as_millis() as u64;

fn arrive(socket: &UdpSocket) {
    let to = socket.local_addr().unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", to).unwrap();
}

/// Serves all links for `time` ms and returns the time then.
fn serve(links: &mut [&mut Sharing], from: u64, time: u64) -> u64 {
    for now in from..=from + time {
        links.iter_mut().for_each(|link| link.round(ms(now)));
    }
    from + time
}

fn forwards(owner: &mut Sharing, to: &mut Sharing, address: IpAddr) -> bool {
    let bytes = packet(to.partition.unwrap());
    assert!(is_forwarded(owner, &Datagram::new(&net(address), &bytes)));
    let taken = take(to);
    assert!(taken.len() <= 1);
    taken.iter().any(|(.., datagram)| *datagram == bytes)
}

#[test]
fn when_the_owner_is_stopped_a_peer_is_the_owner() {
    let [address, _] = addresses();
    let (mut a, socket) = owner_and_socket(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let partitions = [&a, &b, &c].map(|each| each.partition.unwrap());
    // no takeover while nothing arrives
    let mut now = serve(&mut [&mut b, &mut c], 0, 5 * SILENT);
    assert!(b.is_peer(address) && b.deadline().is_none());
    // nor while the owner runs
    arrive(&socket);
    now = serve(&mut [&mut a, &mut b, &mut c], now, 5 * SILENT);
    assert!(b.is_peer(address) && c.is_peer(address));
    // nor if all are stopped
    arrive(&socket);
    now = serve(&mut [&mut b, &mut c], now, 10) + 10 * SILENT;
    now = serve(&mut [&mut b, &mut c, &mut a], now, 5 * SILENT);
    assert!(b.is_peer(address) && c.is_peer(address));
    // but if the owner is
    now = serve(&mut [&mut b, &mut c], now, 2 * SILENT + 10);
    let (owner, other) = if b.is_peer(address) { (&mut c, &mut b) } else { (&mut b, &mut c) };
    assert!(!owner.is_peer(address) && other.is_peer(address));
    assert!(forwards(owner, other, address));
    let mut d = peer(owner, address).unwrap();
    assert!(!partitions.contains(&d.partition.unwrap()) && d.is_peer(address));
    assert!(forwards(owner, &mut d, address));
    // datagrams wait for the stopped process
    let bytes = packet(partitions[0]);
    owner.round(ms(now));
    assert!(is_forwarded(owner, &Datagram::new(&net(address), &bytes)));
    assert!(!a.is_peer(address));
    a.round(ms(now));
    assert!(a.is_peer(address));
    serve(&mut [&mut a, owner], now, 20);
    assert_eq!(take(&mut a), [(net(address).src, 0, bytes)]);
    assert!(forwards(owner, &mut a, address));
    assert_eq!([&a, &*owner, &*other].map(|each| each.is_peer(address)), [true, false, true]);
}

/// Nothing arrives at the UDP socket.
#[test]
fn a_stopped_owner_keeps_no_process_from_the_address() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let mut c = Sharing::new(SHARED).unwrap();
    let start = std::time::Instant::now();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                b.round(Instant::ZERO.plus(start.elapsed()));
                thread::sleep(Duration::from_millis(1));
            }
        });
        acquire_for(&mut c, address, &taken()).unwrap();
        done.store(true, Ordering::SeqCst);
    });
    assert!(c.is_peer(address) && !b.is_peer(address));
    a.round(at(0));
    assert!(a.is_peer(address));
}

/// Datagrams forwarded by a stopped owner arrive once, even after a takeover.
#[test]
fn a_former_owner_forwards_what_it_has() {
    let [address, _] = addresses();
    let (mut a, socket) = owner_and_socket(address);
    let mut b = peer(&mut a, address).unwrap();
    let bytes = packet(b.partition.unwrap());
    let datagram = Datagram { net: &net(address), bytes: &bytes, meta: DatagramMeta::default() };
    // before the stop, and after the owner goes on
    assert!(is_forwarded(&mut a, &datagram));
    arrive(&socket);
    let now = serve(&mut [&mut b], 1, 3 * SILENT);
    assert!(!b.is_peer(address));
    assert!(is_forwarded(&mut a, &datagram));
    a.round(ms(now));
    assert!(a.is_peer(address));
    assert!(is_forwarded(&mut a, &datagram));
    serve(&mut [&mut b, &mut a], now, 20);
    assert_eq!(take(&mut b).len(), 3);
    assert!(a.is_peer(address) && forwards(&mut b, &mut a, address));
}

#[test]
fn a_stopped_owner_stops_nothing_that_does_not_go_by_it() {
    let [address, src] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let mut sender = device(src);
    let bytes = packet(b.partition.unwrap());
    let whole = run([src, address], bytes.len(), 0..bytes.len());
    reaches(&mut sender, ms(0), [src, address], &bytes);
    serve(&mut [&mut b, &mut sender], 0, 5);
    for now in 0..4 * SILENT {
        sender.send(ms(60 + now), &bytes, std::slice::from_ref(&whole)).unwrap().unwrap();
        assert_eq!(take(&mut b).len(), 1);
        serve(&mut [&mut sender, &mut b], 60 + now, 0);
    }
    assert!(b.is_peer(address), "it has no reason to be the owner");
}

#[test]
fn a_request_that_a_stopped_owner_has_accepted_is_made_again() {
    let [address, _] = addresses();
    let (mut a, socket) = owner_and_socket(address);
    let (mut b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    // the next owner is stopped after the other's request
    arrive(&socket);
    let mut now = serve(&mut [&mut b], 1, 3 * SILENT);
    assert!(!b.is_peer(address));
    c.round(ms(now));
    assert_eq!(accepted(&b).len(), 1);
    now = serve(&mut [&mut c], now, 3 * SILENT);
    assert!(!c.is_peer(address));
    now = serve(&mut [&mut b, &mut c], now, 20);
    assert!(b.is_peer(address) && forwards(&mut c, &mut b, address));
    let _ = now;
}

/// The backlog is there when the process goes on.
#[test]
fn what_waits_for_a_process_is_bounded() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let bytes = [&packet(b.partition.unwrap())[..], &[0; 4000]].concat();
    let mut now = 0;
    for _ in 0..10_000 {
        now += 1;
        a.round(at(now));
        assert!(is_forwarded(&mut a, &Datagram::new(&net(address), &bytes)));
    }
    let mut taken = 0;
    loop {
        let count = take(&mut b).len();
        taken += count;
        now += 10_000;
        a.round(at(now));
        if count == 0 && a.paths.write_at.is_none() {
            break;
        }
    }
    assert!((4000..5000).contains(&taken), "{taken}");
    let partition = Entry::Partition(b.partition.unwrap());
    drop(b);
    a.round(at(now + 2000));
    // another test's child has copies of all descriptors until exec
    while a.at_mut(address).unwrap().common.claims.is_taken(partition) {
        thread::yield_now();
    }
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
        a.round(now);
        looks += 1;
    }
    assert!((100..1000).contains(&looks), "{looks}");
    // nor is it asked again
    assert!(accepted(&b).is_empty());
}

fn accepted(link: &Sharing) -> Vec<OwnedFd> {
    let names = link.listeners.listeners.iter().map(|it| &it.name);
    names.filter_map(|name| name.accept().ok()?.check().ok()).collect()
}
