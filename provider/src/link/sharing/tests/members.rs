//! Datagrams that reach the processes at an address without the owner.

use super::{super::members::MEMBERS, *};

fn owner_with_members(address: IpAddr) -> (Sharing, UdpSocket) {
    owner_by(address, |to| {
        let member = Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        member.set_nonblocking(true)?;
        member.set_reuse_port(true)?;
        member.bind(&to.into())?;
        Ok(member)
    })
}

fn peer_with_member(owner: &mut Sharing, address: IpAddr) -> (Sharing, UdpSocket) {
    let mut link = peer(owner, address).unwrap();
    let (at, socket) = link.poll_member().unwrap();
    assert!(at == address && link.poll_member().is_none());
    (link, socket.into())
}

fn take_over(next: &mut Sharing, other: &mut Sharing) {
    for now in 2..10 {
        next.round(at(1000 * now));
        other.round(at(1000 * now));
    }
    next.round(at(10_000));
}

fn send_to(socket: &UdpSocket, partition: IdPartition) {
    let to = socket.local_addr().unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&packet(partition), to).unwrap();
}

fn arrived(socket: &UdpSocket) -> Vec<IdPartition> {
    let mut bytes = [0; 64];
    let mut all = Vec::new();
    while let Ok(length) = socket.recv(&mut bytes) {
        let Addressee::Partition(partition) = Addressee::of(&bytes[..length]) else { panic!() };
        all.push(partition);
    }
    all
}

#[test]
fn each_process_receives_what_is_for_it() {
    let [address, _] = addresses();
    let (mut a, at_a) = owner_with_members(address);
    assert!(a.poll_member().is_none(), "a process that is alone needs none");
    let (b, at_b) = peer_with_member(&mut a, address);
    let (c, at_c) = peer_with_member(&mut a, address);
    let partitions = [&a, &b, &c].map(|each| each.partition.unwrap());
    let send = || partitions.iter().for_each(|partition| send_to(&at_a, *partition));
    send();
    assert_eq!(
        [&at_a, &at_b, &at_c].map(arrived),
        partitions.map(|partition| vec![partition]),
        "nothing is left to forward"
    );
    send();
    for link in [&b, &c] {
        assert!(!epoll::poll_events(&link.epoll).0); // and what is for the owner is heard of once
        let hears = link.descriptors().into_iter().any(crate::readiness::is_readable);
        assert!(hears, "a thread that sleeps on the link hears of it");
    }
    arrived(&at_a);
    // an ended process receives no more, and another can have its socket
    arrived(&at_b);
    drop((b, at_b));
    a.round(at(2000));
    send();
    assert_eq!(arrived(&at_a), partitions[..2]);
    let (d, at_d) = peer_with_member(&mut a, address);
    send_to(&at_a, d.partition.unwrap());
    assert_eq!(arrived(&at_d), [d.partition.unwrap()]);
}

/// There are fewer member sockets than partitions.
#[test]
fn what_is_for_a_process_without_a_member_socket_is_forwarded() {
    let [address, _] = addresses();
    let (mut a, at_a) = owner_with_members(address);
    let members: Vec<_> = (0..MEMBERS).map(|_| peer_with_member(&mut a, address)).collect();
    let mut last = peer(&mut a, address).unwrap();
    assert!(last.poll_member().is_none());
    let partition = last.partition.unwrap();
    send_to(&at_a, partition);
    assert_eq!(arrived(&at_a), [partition]);
    assert!(is_forwarded(&mut a, &Datagram::new(&net(address), &packet(partition))));
    assert_eq!(take(&mut last), [(net(address).src, 0, packet(partition))]);
    for (link, socket) in &members {
        send_to(&at_a, link.partition.unwrap());
        assert_eq!(arrived(socket), [link.partition.unwrap()]);
    }
}

#[test]
fn member_sockets_outlive_the_owner() {
    let [address, _] = addresses();
    let (mut a, at_a) = owner_with_members(address);
    let (mut b, at_b) = peer_with_member(&mut a, address);
    let (mut c, at_c) = peer_with_member(&mut a, address);
    let [of_a, of_b, of_c] = [&a, &b, &c].map(|each| each.partition.unwrap());
    drop(a);
    take_over(&mut b, &mut c);
    assert!(!b.is_peer(address) && c.is_peer(address));
    assert!(b.poll_member().is_none() && c.poll_member().is_none(), "they have theirs");
    let send = || [of_a, of_b, of_c].iter().for_each(|partition| send_to(&at_a, *partition));
    send();
    assert_eq!([&at_a, &at_b, &at_c].map(arrived), [vec![of_a], vec![of_b], vec![of_c]]);
    let (d, at_d) = peer_with_member(&mut b, address);
    send_to(&at_a, d.partition.unwrap());
    send_to(&at_a, of_b);
    assert_eq!([&at_d, &at_b].map(arrived), [vec![d.partition.unwrap()], vec![of_b]]);
}

/// The kernel looks at only the first datagram of a merged run.
#[test]
fn what_is_for_others_is_forwarded_by_whoever_has_it() {
    let [address, _] = addresses();
    let (mut a, _) = owner_with_members(address);
    let (mut b, _) = peer_with_member(&mut a, address);
    let (mut c, _) = peer_with_member(&mut a, address);
    let packets = [&a, &b, &c].map(|each| packet(each.partition.unwrap()));
    let net = net(address);
    assert!(!is_forwarded(&mut b, &Datagram::new(&net, &packets[1])), "its own");
    assert!(!is_forwarded(&mut b, &Datagram::new(&net, b"short")));
    for bytes in [&packets[0], &packets[2], &packets[0]] {
        assert!(is_forwarded(&mut b, &Datagram::new(&net, bytes)));
    }
    assert_eq!(b.paths.forwarded, 3);
    a.round(at(1));
    c.round(at(1));
    assert_eq!(take(&mut a).len(), 2);
    assert_eq!(take(&mut c), [(net.src, 0, packets[2].clone())]);
    // datagrams from a ring are never forwarded
    assert_eq!((a.paths.forwarded, b.paths.forwarded, c.paths.forwarded), (0, 3, 0));
    // forwarding does not make an owner
    drop(b);
    c.round(at(3000));
    assert!(c.is_peer(address) && !a.is_peer(address));
}
