//! Devices of one process stand for several processes.

use roce::{AddressVector, UdDestination};

use super::{
    multicast::{Member, all_members_receive, own_group},
    *,
};

pub(super) fn open(address: IpAddr) -> Side {
    Side::on(Device::at(address).unwrap().open(OpenOptions::default()).unwrap())
}

fn forwarded(side: &Side) -> u64 {
    side.context.link_counters().forwarded
}

/// Into the second half of the peer's memory.
pub(super) fn send(from: &Side, to: &Side, data: &[u8]) {
    from.memory.write_at(0, data).unwrap();
    to.qp.post_recv(&[RecvWr::new(1, [to.memory.sge(1 << 19..1 << 20)])]).unwrap();
    from.qp.post_send(&[SendWr::send(2, from.memory.sge(0..data.len()))]).unwrap();
    assert_eq!(to.next().result.unwrap().byte_len as usize, data.len());
    from.next().result.unwrap();
    assert!(to.memory.to_vec(1 << 19..(1 << 19) + data.len()).unwrap() == data);
}

pub(super) fn exchange(a: &Side, b: &Side, seed: u32) {
    for (from, to, seed) in [(a, b, seed), (b, a, seed + 1)] {
        let data = noise(50_000, seed);
        send(from, to, &data);
        from.qp
            .post_send(&[SendWr::read(
                3,
                to.memory.remote(1 << 19),
                from.memory.sge(1 << 19..(1 << 19) + 50_000),
            )])
            .unwrap();
        from.next().result.unwrap();
        assert!(from.memory.to_vec(1 << 19..(1 << 19) + data.len()).unwrap() == data);
    }
}

#[test]
fn devices_with_one_address_talk_with_each_other_and_with_others() {
    let address = own_address();
    let sides: Vec<Side> = (0..3).map(|_| open(address)).collect();
    let gids: Vec<_> = sides.iter().map(|side| side.context.gids()).collect();
    assert!(gids.iter().all(|own| *own == gids[0]));
    // All stay: a duplicate response needs its queue pair.
    let mut pairs = Vec::new();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (a, b) = (Side::on(sides[from].context.clone()), Side::on(sides[to].context.clone()));
        connect(&a, &b);
        (0..20).for_each(|round| exchange(&a, &b, round));
        pairs.push((a, b));
    }
    for side in &sides {
        for sockets_only in [true, false] {
            let other = Side::on(loopback(OpenOptions { sockets_only, ..OpenOptions::default() }));
            let own = Side::on(side.context.clone());
            connect(&own, &other);
            (0..20).for_each(|round| exchange(&own, &other, round));
            pairs.push((own, other));
        }
    }
    assert_eq!(forwarded(&sides[1]) + forwarded(&sides[2]), 0);
    // Now all have channels, and nothing passes the first.
    let before = forwarded(&sides[0]);
    pairs[..3].iter().for_each(|(a, b)| exchange(a, b, 20));
    assert_eq!(forwarded(&sides[0]), before);
    for side in &sides {
        assert_nothing_dropped(&side.context);
    }
}

/// Network packets reach the process of their queue pair directly.
#[test]
fn devices_with_one_address_receive_each_by_itself() {
    let address = own_address();
    let sides: Vec<Side> = (0..4).map(|_| open(address)).collect();
    let far = loopback(OpenOptions { sockets_only: true, ..OpenOptions::default() });
    // All stay: a duplicate response needs its queue pair.
    let mut pairs = Vec::new();
    for side in &sides {
        let (own, other) = (Side::on(side.context.clone()), Side::on(far.clone()));
        connect(&own, &other);
        exchange(&own, &other, 0); // forwarded until the owner knows them
        let before: Vec<u64> = sides.iter().map(forwarded).collect();
        (1..20).for_each(|round| exchange(&own, &other, round));
        assert_eq!(sides.iter().map(forwarded).collect::<Vec<_>>(), before);
        pairs.push((own, other));
    }
    for side in &sides {
        assert_nothing_dropped(&side.context);
    }
}

#[test]
fn connections_outlive_the_device_that_received_for_them() {
    let address = own_address();
    let mut sides: Vec<Side> = (0..4).map(|_| open(address)).collect();
    for sockets_only in [true, false] {
        let far = Side::on(loopback(OpenOptions { sockets_only, ..OpenOptions::default() }));
        let near = Side::on(sides[sides.len() - 1].context.clone());
        connect(&near, &far);
        exchange(&near, &far, 1);
        drop(sides.remove(0)); // the receiver for all
        (0..20).for_each(|round| exchange(&near, &far, round));
    }
    // The present receiver admits a new device.
    let new = open(address);
    connect(&sides[0], &new);
    exchange(&sides[0], &new, 5);
    drop((sides, new));
    open(address);
}

#[test]
fn datagrams_find_their_receiver() {
    let address = own_address();
    let contexts: Vec<Context> = (0..3).map(|_| open(address).context).collect();
    let members: Vec<Member> = contexts.iter().map(Member::on).collect();
    for (from, sender) in members.iter().enumerate() {
        for receiver in &members {
            let to = UdDestination::new(
                AddressVector::new(contexts[0].gids()[0], 0),
                receiver.qp.qpn(),
                Member::QKEY,
            );
            receiver.qp.post_recv(&[RecvWr::new(1, [receiver.memory.sge(4096..8192)])]).unwrap();
            sender.memory.write_at(0, &[from as u8; 64]).unwrap();
            let send =
                SendWr::send_to(2, to, sender.memory.sge(0..64)).with_flags(SendFlags::empty());
            sender.qp.post_send(&[send]).unwrap();
            assert_eq!(receiver.receive(1), [[from as u8; 64]]);
        }
    }
}

#[test]
fn a_group_has_members_at_one_address() {
    let address = own_address();
    let contexts: Vec<Context> = (0..3).map(|_| open(address).context).collect();
    all_members_receive(&contexts, own_group(false));
}

#[test]
fn queue_pair_numbers_do_not_meet() {
    let address = own_address();
    let contexts: Vec<Context> = (0..3).map(|_| open(address).context).collect();
    let mut slots = Vec::new();
    for context in &contexts {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(64, None).unwrap();
        let qps: Vec<QueuePair> =
            (0..50).map(|_| pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap()).collect();
        let mut own: Vec<u32> = qps.iter().map(|qp| qp.qpn().get() >> 18).collect();
        own.dedup();
        assert_eq!(own.len(), 1);
        slots.extend(own);
        assert!(context.query_device().limits.max_qp >= 1 << 17);
    }
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 3);
}

#[test]
fn a_device_served_by_hand_shares_no_address() {
    let address = own_address();
    let device = Device::at(address).unwrap();
    let by_hand = || OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
    let first = device.open(OpenOptions::default()).unwrap();
    assert!(matches!(device.open(by_hand()), Err(OpenError::Bind(BindError::Taken(_)))));
    drop(first);
    let _first = device.open(by_hand()).unwrap();
    assert!(matches!(
        device.open(OpenOptions::default()),
        Err(OpenError::Bind(BindError::Taken(_)))
    ));
}

#[test]
fn the_same_seed_draws_the_same_numbers() {
    let device = Device::at(own_address()).unwrap();
    let draw = || {
        let context =
            device.open(OpenOptions { seed: Some([9; 32]), ..OpenOptions::default() }).unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4, None).unwrap());
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        (qp.qpn(), context)
    };
    let (first, context) = draw();
    let (other, _) = draw();
    assert_ne!(first, other, "while the first has its part of them, another has another");
    drop(context);
    assert_eq!(draw().0, first);
}
