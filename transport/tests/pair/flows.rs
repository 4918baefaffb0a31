use std::collections::{BTreeMap, BTreeSet};

use roce_transport::{
    addr::{Qpn, udp_source_port},
    wire::Ident,
    work::{Data, RecvWr, SendWr},
};

use crate::common::{End, Options, Pair, Side, all_ok};

const PORTS: [u16; 5] = [61_000, 61_001, 61_004, 61_007, 65_535];

fn ports(pair: &Pair, side: Side) -> BTreeMap<Qpn, BTreeSet<u16>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for record in pair.trace.from(side) {
        found.entry(record.headers.bth().dest_qp).or_default().insert(record.net.src_port);
    }
    found
}

/// The ICRC covers the port.
#[test]
fn each_flow_keeps_to_one_of_the_ports() {
    let mut pair = Pair::new();
    let ip = pair.a.ip;
    pair.a.adapter.set_flow_ports(ip, PORTS.to_vec());
    let far = pair.b.buffer(8000);
    let near = pair.a.buffer(8000);
    let ends: Vec<_> = (0..24).map(|_| pair.connect(Options::default())).collect();
    for (a, b) in &ends {
        pair.post_send(a, &SendWr::write(1, far.remote(0), near.all()));
        pair.post_send(b, &SendWr::read(2, near.remote(0), far.all()));
    }
    pair.run();
    let found = ports(&pair, Side::A);
    for (a, b) in &ends {
        assert_eq!((a.send_outcomes(), b.send_outcomes()), (all_ok([1], 0), all_ok([2], 8000)));
        let by_flow = usize::from(udp_source_port(0, a.qpn, b.qpn));
        assert_eq!(found[&b.qpn], [PORTS[by_flow % PORTS.len()]].into());
    }
    let used: BTreeSet<u16> = found.into_values().flatten().collect();
    assert!(used.len() > 2, "{used:?} for 24 flows");
    // the other side's link chooses ports
    assert!(ports(&pair, Side::B).values().all(|ports| !PORTS.contains(ports.first().unwrap())));
}

/// An address returns with other ports.
#[test]
fn ports_that_change_under_a_connection() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(64));
    let ip = pair.a.ip;
    let by_flow = udp_source_port(0, a.qpn, b.qpn);
    let mut wanted = BTreeSet::new();
    for ports in [vec![], vec![61_003], vec![62_000], vec![]] {
        wanted.insert(ports.first().copied().unwrap_or(by_flow));
        pair.a.adapter.set_flow_ports(ip, ports);
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
        pair.run();
    }
    pair.a.adapter.set_flow_ports([10, 9, 9, 9].into(), vec![61_009]);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1; 5], 0));
    assert_eq!(ports(&pair, Side::A)[&b.qpn], wanted);
}

#[test]
fn datagrams_to_several_leave_from_several() {
    let mut pair = Pair::new();
    let ip = pair.a.ip;
    pair.a.adapter.set_flow_ports(ip, PORTS.to_vec());
    let (from, _) = pair.datagrams(Options::default());
    let buffer = pair.b.buffer(64);
    let members: Vec<_> = (0..24).map(|_| pair.datagrams(Options::default()).1).collect();
    for member in &members {
        pair.post_recv(member, &RecvWr::new(1, [buffer.all()]));
        let to = pair.b.destination(member.qpn);
        pair.post_send(&from, &SendWr::send_to(1, to, Data::inline(&[1])));
    }
    pair.run();
    let found = ports(&pair, Side::A);
    assert!(found.values().all(|ports| ports.len() == 1 && ports.is_subset(&PORTS.into())));
    let used: BTreeSet<u16> = found.into_values().flatten().collect();
    assert!(used.len() > 2, "{used:?} for 24 flows");
}

#[test]
fn queue_pairs_with_one_port_share_a_run() {
    let mut pair = Pair::new();
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(64));
    for (ip, node) in [(pair.a.ip, &mut pair.a), (pair.b.ip, &mut pair.b)] {
        node.adapter.set_flow_ports(ip, PORTS.to_vec());
    }
    let ends: Vec<_> = (0..64).map(|_| pair.connect(Options::default())).collect();
    for (a, _) in &ends {
        pair.post_send(a, &SendWr::write(1, far.remote(0), near.all()));
    }
    pair.run();
    for side in [Side::A, Side::B] {
        let packets: Vec<_> = pair.trace.from(side).collect();
        let first = |ident| matches!(ident, Ident::Known { id: 0, .. });
        let runs = packets.iter().filter(|record| first(record.net.ident)).count();
        assert_eq!((packets.len(), runs), (64, PORTS.len()), "{side:?}");
    }
}

/// With more data than a buffer.
#[test]
fn order_by_ports_is_fair() {
    let mut pair = Pair::new();
    let ip = pair.a.ip;
    pair.a.adapter.set_flow_ports(ip, PORTS.to_vec());
    let length = 600_000; // about 150 packets, three turns
    let (near, far) = (pair.a.buffer(length), pair.b.buffer(length));
    let ends: Vec<_> = (0..12).map(|_| pair.connect(Options::default())).collect();
    for (a, _) in &ends {
        pair.post_send(a, &SendWr::write(1, far.remote(0), near.all()));
    }
    let mut sent = BTreeMap::<Qpn, usize>::new();
    for _ in 0..6 {
        pair.a.transmit.clear();
        pair.a.adapter.poll_transmit(pair.now, &mut pair.a.transmit);
        for (_, bytes) in pair.a.transmit.datagrams() {
            let qpn = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
            *sent.entry(Qpn::new(qpn)).or_default() += 1;
        }
        let of = |(_, b): &(End, End)| sent.get(&b.qpn).copied().unwrap_or_default();
        let most = ends.iter().map(of).max().unwrap();
        let least = ends.iter().map(of).min().unwrap();
        assert!(most - least <= 64, "between {least} and {most} packets: {sent:?}");
    }
    assert!(sent.values().all(|&packets| packets >= 64), "{sent:?}");
}
