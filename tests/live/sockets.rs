use std::{
    collections::{BTreeMap, BTreeSet},
    net::UdpSocket,
    sync::Arc,
};

use roce::{
    QpInitAttr, Qpn,
    link::{Direction, Observed, Observer},
    transport::{addr::ROCE_UDP_PORT, wire::Packet},
};

use super::*;

#[derive(Clone, Debug, Default)]
struct Arrivals(Arc<Mutex<BTreeMap<Qpn, BTreeSet<u16>>>>);

impl Observer for Arrivals {
    fn observe(&mut self, observed: &Observed<'_>) {
        if observed.direction == Direction::Received {
            let packet = Packet::parse(observed.bytes).unwrap();
            let mut arrivals = self.0.lock().unwrap();
            let ports = arrivals.entry(packet.headers.bth().dest_qp).or_default();
            ports.insert(observed.net.src_port);
        }
    }
}

fn side(options: OpenOptions) -> (Side, Arrivals) {
    let arrivals = Arrivals::default();
    let observer = Some(Box::new(arrivals.clone()) as Box<dyn Observer>);
    (Side::on(loopback(OpenOptions { observer, ..options })), arrivals)
}

fn write_with_many(a: &Side, b: &Side, count: usize) -> Vec<(QueuePair, QueuePair)> {
    let [near, far] = [a, b].map(|side| {
        let pd = side.context.alloc_pd().unwrap();
        let qp = |_| pd.create_qp(&QpInitAttr::new(QpType::Rc, &side.cq)).unwrap();
        (pd.allocate(20_000, ALL).unwrap(), (0..count).map(qp).collect::<Vec<_>>())
    });
    let pairs: Vec<_> = near.1.into_iter().zip(far.1).collect();
    for (near, far) in &pairs {
        near.connect_to(far.endpoint(0).unwrap()).unwrap();
        far.connect_to(near.endpoint(0).unwrap()).unwrap();
    }
    let (near, far) = (near.0, far.0);
    near.write_at(0, &noise(20_000, 1)).unwrap();
    for (qp, _) in &pairs {
        qp.post_send(&[SendWr::write(1, far.remote(0), near.sge_all())]).unwrap();
    }
    for _ in &pairs {
        a.next().result.unwrap();
    }
    assert!(far.to_vec(0..20_000).unwrap() == noise(20_000, 1));
    pairs
}

/// Responses go to 4791, from which nothing came. ICRCs match the real source port.
#[test]
fn flows_leave_from_several_ports() {
    let options = || OpenOptions {
        sockets_only: true,
        source_ports: Some(8),
        seed: Some([7; 32]),
        ..OpenOptions::default()
    };
    let ((a, at_a), (b, at_b)) = (side(options()), side(options()));
    let pairs = write_with_many(&a, &b, 24);
    for (arrivals, own) in [
        (at_b, pairs.iter().map(|(_, far)| far.qpn()).collect::<BTreeSet<_>>()),
        (at_a, pairs.iter().map(|(near, _)| near.qpn()).collect()),
    ] {
        let arrivals = arrivals.0.lock().unwrap();
        assert_eq!(arrivals.keys().copied().collect::<BTreeSet<_>>(), own);
        assert!(arrivals.values().all(|ports| ports.len() == 1), "{arrivals:?}");
        let used: BTreeSet<u16> = arrivals.values().flatten().copied().collect();
        assert!((3..=8).contains(&used.len()) && *used.first().unwrap() >= 0xC000, "{used:?}");
    }
    for side in [&a, &b] {
        assert_nothing_dropped(&side.context);
        assert_eq!(side.context.link_counters().send_errors, 0);
    }
}

/// Responses to 4791 reach each.
#[test]
fn devices_with_one_address_have_different_ports() {
    let address = own_address();
    let options = || OpenOptions { source_ports: Some(8), ..OpenOptions::default() };
    let far_options = OpenOptions { sockets_only: true, ..options() };
    let (far, at_far) = side(far_options);
    let mut used = Vec::new();
    for _ in 0..3 {
        let near = Side::on(Device::at(address).unwrap().open(options()).unwrap());
        // All stay: a duplicate response needs its queue pair.
        let pairs = write_with_many(&near, &far, 16);
        let ports = std::mem::take(&mut *at_far.0.lock().unwrap());
        used.push((near, pairs, ports.into_values().flatten().collect::<BTreeSet<u16>>()));
    }
    for (index, (near, _, ports)) in used.iter().enumerate() {
        assert!(ports.len() > 2, "{ports:?}");
        assert!(used[..index].iter().all(|(_, _, others)| others.is_disjoint(ports)), "{ports:?}");
        assert_nothing_dropped(&near.context);
    }
}

/// Loopback has one path: several ports only on request.
#[test]
fn without_ports_everything_leaves_from_4791() {
    for source_ports in [None, Some(0), Some(1)] {
        let options = || OpenOptions { sockets_only: true, source_ports, ..OpenOptions::default() };
        let ((a, _), (b, at_b)) = (side(options()), side(options()));
        write_with_many(&a, &b, 3);
        let arrivals = at_b.0.lock().unwrap();
        let used: BTreeSet<u16> = arrivals.values().flatten().copied().collect();
        assert_eq!(used, [ROCE_UDP_PORT].into(), "{source_ports:?}");
    }
}

#[test]
fn shared_memory_keeps_the_port() {
    let options = || OpenOptions {
        source_ports: Some(8),
        faults: "drop psn 1..2 once".parse().unwrap(),
        ..OpenOptions::default()
    };
    let ((a, _), (b, at_b)) = (side(options()), side(options()));
    let start = Instant::now();
    while a.context.link_counters().shared_runs < 100 {
        write_with_many(&a, &b, 8);
        assert!(start.elapsed() < PATIENCE, "{:?}", a.context.link_counters());
    }
    assert!(at_b.0.lock().unwrap().values().all(|ports| ports.len() == 1));
    let used: BTreeSet<u16> = at_b.0.lock().unwrap().values().flatten().copied().collect();
    assert!(used.len() > 1 && *used.first().unwrap() >= 0xC000, "{used:?}");
    for side in [&a, &b] {
        assert_eq!(side.context.counters().dropped(DropReason::Icrc), 0);
        assert_eq!(side.context.counters().icrc_trusted, 0);
    }
}

/// The peer sees the same packets.
#[test]
fn datagrams_leave_singly_if_asked_for() {
    let mut runs = Vec::new();
    for segments in [None, Some(1)] {
        let options = || OpenOptions { sockets_only: true, segments, ..OpenOptions::default() };
        let ((a, _), (b, _)) = (side(options()), side(options()));
        connect(&a, &b);
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..1 << 18))]).unwrap();
        a.next().result.unwrap();
        assert!(a.context.counters().sent_packets >= 64);
        runs.push((a.context.link_counters().sent_runs, a.context.counters().sent_packets));
    }
    assert!(runs[0].0 * 4 < runs[0].1, "{runs:?}");
    assert_eq!(runs[1].0, runs[1].1);
}

/// Arrivals are flagged meanwhile.
#[test]
fn losses_in_the_own_socket_are_counted() {
    let options = OpenOptions {
        sockets_only: true,
        receive_buffer: Some(20_000),
        progress: Progress::Manual,
        ..OpenOptions::default()
    };
    let context = loopback(options);
    let to = (context.gids()[0].to_ip(), ROCE_UDP_PORT);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let lost = || context.link_counters().socket_drops;
    let congested = || context.counters().receive_buffer_congestion;
    // a call serves for a limited time
    let take_all = || (0..100).for_each(|_| context.progress());
    for _ in 0..4 {
        socket.send_to(&[0; 64], to).unwrap();
    }
    take_all();
    assert_eq!((context.counters().received_packets, congested(), lost()), (4, 0, 0));
    for _ in 0..200 {
        socket.send_to(&[0; 64], to).unwrap();
    }
    take_all();
    let kept = context.counters().received_packets - 4;
    assert!(kept < 200 && congested() > 0, "{:?}", context.counters());
    socket.send_to(&[0; 64], to).unwrap(); // the kernel reports losses with the next datagram
    take_all();
    assert_eq!(lost(), 200 - kept);
    let named = context.link_counters().named().find(|counter| counter.name == "link_socket_drops");
    assert_eq!(named.unwrap().value, lost());
}
