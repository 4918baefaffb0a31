//! Channels between processes with addresses of their own.

use super::{
    super::listener::{ACCEPT_BATCH, MAX_PENDING, PENDING_TIMEOUT},
    *,
};
use crate::link::{descriptors::send_with, rings::Outgoing};

#[test]
fn packets_take_the_channel_once_it_is_open() {
    let (mut a, mut b, ends) = pair();
    let [src, _] = ends;
    assert!(!b.inbox.is_settled());
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
    assert!(b.inbox.is_settled());
    assert_eq!(a.paths.sent.runs, 2);
    for checksum_verified in [false, true] {
        a.send(at(2), b"abc", &[run(ends, 3, 0..3)]).unwrap().unwrap();
        let mut told = None;
        b.inbox.receive(&mut |arrived| told = Some(arrived.meta.checksum_verified));
        assert_eq!(told, Some(checksum_verified));
        a.trusted = true;
    }
    // the other direction has its own channel
    let [there, back] = [ends[1], ends[0]];
    assert!(!reaches(&mut b, at(3), [there, back], ANY));
}

#[test]
fn a_device_is_asked_for_one_channel() {
    let ends = addresses();
    let (mut a, mut b) = (device(ends[0]), device(ends[1]));
    let one = packet(IdPartition::new(3).unwrap());
    for now in 0..10 {
        for datagram in [ANY, &one] {
            assert!(!reaches(&mut a, at(now), ends, datagram));
        }
    }
    b.round(at(10));
    assert_eq!(b.inbox.rings.len(), 1);
    a.round(at(10));
    assert!(reaches(&mut a, at(11), ends, ANY) && reaches(&mut a, at(11), ends, &one));
}

#[test]
fn an_absent_device_is_asked_again_later() {
    let ends = addresses();
    let mut a = device(ends[0]);
    assert!(!reaches(&mut a, at(0), ends, ANY));
    let mut b = device(ends[1]);
    assert!(!reaches(&mut a, at(99_999), ends, ANY));
    b.round(at(99_999));
    assert!(b.inbox.rings.is_empty());
    meet(&mut a, &mut b, 101_000, ends);
    let group = [ends[0], [239, 1, 1, 1].into()];
    assert!(!reaches(&mut a, at(0), group, ANY), "a group has no channel");
}

#[test]
fn the_end_of_a_process_is_noticed_and_what_it_sent_before_is_received() {
    let (mut a, mut b, ends) = pair();
    let [src, dst] = ends;
    a.send(at(2), b"last words", &[run(ends, 10, 0..10)]).unwrap().unwrap();
    drop(a);
    b.round(at(2000));
    assert_eq!(take(&mut b), [(src, 0, b"last words".into())]);
    b.round(at(4000));
    assert!(b.inbox.rings.is_empty());
    let mut a = device(src);
    meet(&mut a, &mut b, 6000, ends);
    drop(b);
    a.round(at(8000));
    let mut b = device(dst);
    meet(&mut a, &mut b, 9000, ends);
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
        a.round(at(now));
        taken.extend(take(&mut b));
        now += 50;
    }
    assert_eq!(taken.len(), 61);
    assert!(taken[..60].iter().all(|(.., datagram)| *datagram == bytes));
    assert_eq!(taken[60].2, bytes[..7]);
    // unread data is lost in the end
    let kept = (0..1000)
        .take_while(|_| a.send(at(now), &bytes, std::slice::from_ref(&whole)).unwrap().is_ok())
        .count();
    assert!((200..400).contains(&kept), "{kept}");
}

#[test]
fn a_sleeper_is_woken() {
    let (mut a, mut b, ends) = pair();
    let is_readable =
        |link: &Sharing| link.descriptors().into_iter().any(crate::readiness::is_readable);
    let mut send = || a.send(at(2), b"x", &[run(ends, 1, 0..1)]).unwrap().unwrap();
    send();
    assert!(!is_readable(&b), "it polls");
    assert!(!b.inbox.park(), "there is something already");
    b.inbox.unpark();
    take(&mut b);
    assert!(b.inbox.park());
    assert!(!is_readable(&b));
    send();
    assert!(is_readable(&b));
    // another thread takes the datagram
    b.round(at(3));
    assert_eq!(take(&mut b).len(), 1);
    assert!(!is_readable(&b));
    send();
    assert!(is_readable(&b));
    b.inbox.unpark();
    b.round(at(4));
    assert_eq!(take(&mut b).len(), 1);
    send();
    assert!(!is_readable(&b), "it polls again");
}

#[test]
fn a_hello_that_makes_no_sense_is_refused() {
    let ends = addresses();
    let mut b = device(ends[1]);
    let connect = || connect(&of_process(ends[1], 0, None)).unwrap();
    let nothing = connect();
    let words = connect();
    rustix::net::send(&words, b"roce", rustix::net::SendFlags::empty()).unwrap();
    let mut hello = Hello::From(ends[0]).message();
    let [other_kind, no_ring, asks_for_an_address, with_an_address] = [(); 4].map(|()| connect());
    send_with(&no_ring, &hello, &[nothing.as_fd()]).unwrap();
    hello[4] += 1;
    let other_version = Outgoing::request(other_kind, &hello);
    // for the owner alone
    Hello::JoinAddress.send(&asks_for_an_address).unwrap();
    Hello::RegisterPeer(1).send(&with_an_address).unwrap();
    b.round(at(0));
    assert_eq!((b.inbox.rings.len(), b.listeners.pending.len()), (0, 1));
    drop((nothing, other_version));
    b.round(at(2000));
    assert_eq!((b.inbox.rings.len(), b.listeners.pending.len()), (0, 0));
    // others are still served
    meet(&mut device(ends[0]), &mut b, 4000, ends);
}

/// Opens silent connections, which the link accepts from this time on.
fn crowd(link: &mut Sharing, address: IpAddr, number: usize, from: u64) -> (Vec<OwnedFd>, u64) {
    let crowd: Vec<_> = (0..number).map(|_| connect(&of_address(address, 0)).unwrap()).collect();
    let mut now = from;
    for _ in (0..number).step_by(ACCEPT_BATCH) {
        link.round(at(now));
        now += 1000;
    }
    (crowd, now)
}

#[test]
fn processes_that_connect_and_say_nothing_keep_nobody_out() {
    let ends = addresses();
    let mut b = device(ends[1]);
    let (silent, now) = crowd(&mut b, ends[1], MAX_PENDING + 10, 0);
    assert_eq!(b.listeners.pending.len(), MAX_PENDING);
    let is_refused = |socket: &OwnedFd| is_closed(socket);
    assert_eq!(silent.iter().filter(|socket| is_refused(socket)).count(), 10);
    assert!(silent[..10].iter().all(is_refused), "those that were silent for longest");
    meet(&mut device(ends[0]), &mut b, now, ends);
    let timeout = PENDING_TIMEOUT.as_micros() as u64;
    assert!(b.deadline().is_some_and(|due| due <= at(now + timeout)));
    b.round(at(now + timeout));
    assert_eq!((b.listeners.pending.len(), b.deadline()), (0, None));
    assert!(silent.iter().all(is_refused));
}

#[test]
fn few_connections_are_looked_at_in_one_go() {
    let [_, dst] = addresses();
    let mut b = device(dst);
    let _crowd: Vec<_> =
        (0..3 * ACCEPT_BATCH).map(|_| connect(&of_address(dst, 0)).unwrap()).collect();
    for round in 1..=3 {
        b.round(at(1000 * round as u64));
        assert_eq!(b.listeners.pending.len(), round * ACCEPT_BATCH);
    }
}

#[test]
fn an_address_that_goes_takes_its_channels_with_it() {
    let (mut a, mut b, ends) = pair();
    b.forget(ends[1]);
    assert!(b.inbox.rings.is_empty() && b.listeners.listeners.is_empty());
    a.round(at(2000));
    assert!(!reaches(&mut a, at(2001), ends, ANY));
    meet(&mut a, &mut device(ends[1]), 200_000, ends);
    a.forget(ends[0]);
    assert!(a.paths.pairs.values().all(|it| it.channels.is_empty()));
}
