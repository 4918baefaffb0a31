//! Processes of other users at an address.

use super::{
    super::foreign::{HELLO_FOREIGN, MAX_OF_USER},
    *,
};
use crate::link::shm::socket::connect_unchecked;

/// Serves all for some time, in milliseconds.
fn serve(links: &mut [&mut ShmLink], from: u64, to: u64) {
    for now in from..to {
        for link in links.iter_mut() {
            link.look_at = Instant::ZERO;
            link.attend(at(1000 * now));
        }
    }
}

/// A process of another user at the address that `owner` has: it is treated as one, though this one
/// could read its memory. `from`: the time in microseconds.
fn foreign_by(
    owner: &mut ShmLink,
    address: IpAddr,
    make_socket: &MakeSocket,
    from: u64,
) -> io::Result<ShmLink> {
    let mut link = ShmLink::new(Sharing::All).unwrap();
    link.set_trusted_users(TrustedUsers::All);
    while_it_serves(owner, from, || {
        link.join_foreign(address, 0, make_socket)?;
        link.choose_partition(7)
    })?;
    Ok(link)
}

fn foreign(owner: &mut ShmLink, address: IpAddr) -> io::Result<ShmLink> {
    foreign_by(owner, address, &udp(), 0)
}

#[test]
fn what_is_for_a_process_of_another_user_is_forwarded() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let (mut b, mut c) = (foreign(&mut a, address).unwrap(), foreign(&mut a, address).unwrap());
    let partitions = [&a, &b, &c].map(|each| each.partition().unwrap());
    assert!(partitions[0] != partitions[1] && partitions[1] != partitions[2]);
    assert_eq!([&a, &b, &c].map(|each| each.is_peer(address)), [false, true, true]);
    let net = net(address);
    let packets = partitions.map(packet);
    assert_eq!(
        packets.each_ref().map(|bytes| is_forwarded(&mut a, &Datagram::new(&net, bytes))),
        [false, true, true]
    );
    a.flush(at(1));
    assert_eq!(take(&mut b), [(net.src, 0, packets[1].clone())]);
    assert_eq!(take(&mut c), [(net.src, 0, packets[2].clone())]);
    // what it gets: the ring alone
    assert!(b.addresses.addresses.is_empty() && b.addresses.claims(address).is_none());
    // one that has ended is forwarded nothing, and its partition is free
    drop(b);
    serve(&mut [&mut a], 10, 20);
    assert!(!is_forwarded(&mut a, &Datagram::new(&net, &packets[1])));
    assert!(!a.addresses.addresses[0].is_left(partitions[1]));
}

/// One that sleeps is woken by its connection: the owner writes to nothing else of it.
#[test]
fn a_foreign_peer_that_sleeps_is_woken() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut b = foreign(&mut a, address).unwrap();
    let bytes = packet(b.partition().unwrap());
    assert!(b.park());
    serve(&mut [&mut b], 1, 2);
    let is_readable = |link: &ShmLink| crate::readiness::is_readable(link.descriptor());
    assert!(!is_readable(&b));
    assert!(is_forwarded(&mut a, &Datagram::new(&net(address), &bytes)));
    a.flush(at(1));
    assert!(is_readable(&b));
    b.unpark();
    serve(&mut [&mut b], 2, 3);
    assert!(!is_readable(&b), "the message is read");
    assert_eq!(take(&mut b).len(), 1);
}

#[test]
fn a_service_belongs_to_one_process_whoever_its_user_is() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut peer = peer(&mut a, address).unwrap();
    let (mut b, mut c) = (foreign(&mut a, address).unwrap(), foreign(&mut a, address).unwrap());
    let [one, two, three] = [1, 2, 3].map(ServiceId);
    let mut time = 100;
    let mut settle = |links: &mut [&mut ShmLink]| {
        serve(links, time, time + 10);
        time += 10;
    };
    a.claim(one, address).unwrap();
    b.claim(two, address).unwrap();
    peer.claim(three, address).unwrap();
    settle(&mut [&mut a, &mut peer, &mut b, &mut c]);
    let in_use = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    };
    for link in [&mut b, &mut c] {
        in_use(link.claim(one, address));
        in_use(link.claim(three, address));
    }
    for link in [&mut a, &mut c, &mut peer] {
        assert!(link.is_claimed(two, address));
        in_use(link.claim(two, address));
    }
    // its requests come to it, those of others do not
    let services =
        |link: &ShmLink| -> Vec<_> { link.addresses.peers.services_at(address).collect() };
    assert_eq!(services(&a).into_iter().filter(|it| *it == two).count(), 1);
    b.release(two, address);
    settle(&mut [&mut a, &mut peer, &mut b, &mut c]);
    c.claim(two, address).unwrap();
    settle(&mut [&mut a, &mut peer, &mut b, &mut c]);
    in_use(a.claim(two, address));
    drop(c);
    settle(&mut [&mut a, &mut peer, &mut b]);
    a.claim(two, address).unwrap();
}

#[test]
fn processes_of_one_user_are_bounded_and_nonsense_is_refused() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut others: Vec<ShmLink> =
        (0..MAX_OF_USER).map(|_| foreign(&mut a, address).unwrap()).collect();
    assert!(foreign(&mut a, address).is_err(), "there are enough of that user");
    assert!(peer(&mut a, address).is_ok(), "the own user has the rest");
    others.pop();
    serve(&mut [&mut a], 100, 110);
    assert!(foreign(&mut a, address).is_ok());

    let ask = |messages: &[&[u8]]| {
        let socket = connect_unchecked(address, 0).unwrap();
        for message in messages {
            let _ = rustix::net::send(&socket, message, SendFlags::NOSIGNAL);
        }
        socket
    };
    others.truncate(2);
    serve(&mut [&mut a], 200, 210);
    let peers = a.addresses.peers.foreign_at(address).count();
    let nonsense = [
        ask(&[&HELLO_FOREIGN, b"\xFFnonsense"]),
        ask(&[&HELLO_FOREIGN, &[1, 0, 0, 0, 0, 0, 0, 0, 1]]), // services before it has a partition
        ask(&[&HELLO_FOREIGN, &[0, 63, 0, 0, 0, 0, 0, 0, 0, 0]]), // there is no such partition
    ];
    serve(&mut [&mut a], 210, 230);
    assert_eq!(a.addresses.peers.foreign_at(address).count(), peers);
    drop(nonsense);
    // one that asks for nothing is not for ever in the way of the others of its user
    let silent: Vec<_> = (0..MAX_OF_USER).map(|_| ask(&[&HELLO_FOREIGN])).collect();
    for now in (240..240 + 2 * MAX_OF_USER as u64).step_by(10) {
        serve(&mut [&mut a], now, now + 10);
    }
    assert!(foreign_by(&mut a, address, &udp(), 1_000_000).is_err());
    assert!(foreign_by(&mut a, address, &udp(), 1_500_000).is_ok());
    drop(silent);
    // the owner's own partition is not to be had
    let own = a.partition().unwrap().get();
    let socket = ask(&[&HELLO_FOREIGN, &[0, own, 0, 0, 0, 0, 0, 0, 0, 0]]);
    serve(&mut [&mut a], 2000, 2010);
    let mut answer = [0; 16];
    receive_with(&socket, &mut answer).unwrap(); // the ring
    let (length, _) = receive_with(&socket, &mut answer).unwrap();
    assert_eq!(answer[..length], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

/// The next owner knows the process by its token, and nobody else gets its numbers meanwhile.
#[test]
fn when_the_owner_ends_a_foreign_peer_goes_on_by_the_next() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut next = peer(&mut a, address).unwrap();
    let mut b = foreign_by(&mut a, address, &taken(), 0).unwrap();
    let partition = b.partition().unwrap();
    b.claim(ServiceId(5), address).unwrap();
    serve(&mut [&mut a, &mut next, &mut b], 10, 20);
    drop(a);
    serve(&mut [&mut next], 20, 30);
    assert!(!next.is_peer(address) && next.addresses.addresses[0].is_left(partition));
    // a stranger that asks for the same without the token
    let thief = connect_unchecked(address, 0).unwrap();
    for message in [&HELLO_FOREIGN[..], &[0, partition.get(), 1, 0, 0, 0, 0, 0, 0, 0]] {
        rustix::net::send(&thief, message, SendFlags::NOSIGNAL).unwrap();
    }
    serve(&mut [&mut next, &mut b], 30, 60);
    let bytes = packet(partition);
    assert!(is_forwarded(&mut next, &Datagram::new(&net(address), &bytes)));
    next.flush(at(60_000));
    assert_eq!(take(&mut b).len(), 1);
    assert!(next.is_claimed(ServiceId(5), address), "it has been told again");
    // one that does not come is given up, and its numbers are free then
    drop(b);
    serve(&mut [&mut next], 60, 70);
    assert!(!next.addresses.addresses[0].is_left(partition));
}

#[test]
fn numbers_of_a_foreign_peer_that_does_not_come_are_free_after_a_second() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut next = peer(&mut a, address).unwrap();
    let b = foreign_by(&mut a, address, &taken(), 0).unwrap();
    let partition = b.partition().unwrap();
    drop(a);
    drop(b);
    serve(&mut [&mut next], 20, 500);
    assert!(next.addresses.addresses[0].is_left(partition));
    serve(&mut [&mut next], 500, 1100);
    assert!(!next.addresses.addresses[0].is_left(partition));
}

#[test]
fn when_nobody_is_left_a_foreign_peer_is_the_owner() {
    let [address, _] = addresses();
    let mut a = owner(address);
    let mut b = foreign(&mut a, address).unwrap();
    let partition = b.partition();
    b.claim(ServiceId(5), address).unwrap();
    serve(&mut [&mut a, &mut b], 10, 20);
    drop(a);
    serve(&mut [&mut b], 20, 60);
    assert!(!b.is_peer(address) && b.partition() == partition);
    let (at_address, _) = b.poll_owned().unwrap();
    assert_eq!(at_address, address);
    // others come to it
    let mut c = peer(&mut b, address).unwrap();
    assert!(c.is_peer(address) && c.is_claimed(ServiceId(5), address));
    let bytes = packet(c.partition().unwrap());
    assert!(is_forwarded(&mut b, &Datagram::new(&net(address), &bytes)));
    b.flush(at(100_000));
    assert_eq!(take(&mut c).len(), 1);
}

/// A device has one partition at all its addresses. What it was given at one of them and cannot have
/// at another is free again.
#[test]
fn a_partition_is_one_at_several_addresses() {
    let both = addresses();
    let mut a = ShmLink::new(Sharing::All).unwrap();
    both.iter().for_each(|address| drop(a.acquire(*address, 0, false, &udp()).unwrap()));
    a.choose_partition(7).unwrap();
    let first = foreign(&mut a, both[1]).unwrap();
    let mut second = ShmLink::new(Sharing::All).unwrap();
    second.set_trusted_users(TrustedUsers::All);
    let joined = while_it_serves(&mut a, 100_000, || {
        both.iter().try_for_each(|to| second.join_foreign(*to, 0, &udp()))?;
        second.choose_partition(7)
    });
    joined.unwrap();
    let [one, other] = [&first, &second].map(|link| link.partition().unwrap());
    assert_ne!(one, other);
    let has = |address: usize, partition| a.addresses.addresses[address].is_left(partition);
    assert_eq!([has(0, one), has(1, one)], [false, true]);
    assert_eq!([has(0, other), has(1, other)], [true, true]);
}
