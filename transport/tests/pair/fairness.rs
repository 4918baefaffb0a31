use roce_transport::{
    adapter::TransmitBuffer,
    addr::{Mtu, Qpn},
    event::{Disposition, DropReason},
    qp::QpType,
    wire::{Ident, Operation as Op, PACKET_MAX},
    work::{Data, RecvWr, SendWr},
};

use crate::common::{Half, Options, Pair, Side, UDP_SEGMENT, all_ok, pkt, qp_init};

/// Packets that A sent before this one.
fn place_of(pair: &Pair, sought: Op) -> usize {
    let operations = pair.trace.operations(Side::A);
    operations.iter().position(|&operation| operation == sought).unwrap()
}

#[test]
fn a_long_queue_does_not_starve_a_short_one() {
    let mut pair = Pair::new();
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let (busy, _) = pair.connect(options);
    let (quiet, peer) = pair.connect(options);
    let (near, far) = (pair.a.buffer(256_000), pair.b.buffer(256_000));
    pair.post_recv(&quiet, &RecvWr::new(1, []));
    pair.post_send(&peer, &SendWr::send(1, Data::empty()));
    pair.post_send(&busy, &SendWr::write(2, far.remote(0), near.all()));
    pair.transmit(Side::B);
    pair.now = pair.network.poll_timeout().unwrap();
    pair.deliver();
    pair.transmit(Side::A);
    let place = place_of(&pair, Op::Acknowledge);
    assert!(place <= 64, "{place} packets went before the acknowledgement");
    pair.run();
    assert_eq!((busy.send_outcomes(), peer.send_outcomes()), (all_ok([2], 0), all_ok([1], 0)));
}

#[test]
fn a_small_buffer_makes_no_turn_longer() {
    let mut pair = Pair::new();
    pair.a.transmit = TransmitBuffer::new(8 << 10, UDP_SEGMENT);
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let ((busy, _), (quiet, _)) = (pair.connect(options), pair.connect(options));
    let (near, far) = (pair.a.buffer(256_000), pair.b.buffer(256_000));
    pair.post_send(&busy, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&quiet, &SendWr::write(2, far.remote(0), near.sge(0, 8)));
    pair.transmit(Side::A);
    let place = place_of(&pair, Op::WriteOnly);
    assert!(place <= 64, "{place} packets went before");
    pair.run();
    assert_eq!((busy.send_outcomes(), quiet.send_outcomes()), (all_ok([1], 0), all_ok([2], 0)));
}

/// The peer's READs exceed a buffer.
#[test]
fn own_requests_leave_beside_long_responses() {
    let (mut pair, a, b) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, far) = (pair.a.buffer(256_000), pair.b.buffer(256_000));
    pair.post_send(&b, &SendWr::read(1, near.remote(0), far.all()));
    pair.transmit(Side::B);
    pair.now = pair.network.poll_timeout().unwrap();
    pair.deliver();
    pair.post_send(&a, &SendWr::write(2, far.remote(0), near.sge(0, 8)));
    pair.transmit(Side::A);
    let place = place_of(&pair, Op::WriteOnly);
    assert!(place <= 16, "{place} packets of the answer went before the request");
    assert!(pair.trace.operations(Side::A).len() > 500, "the answer is long");
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([2], 0));
    assert_eq!(b.send_outcomes(), all_ok([1], 256_000));
}

#[test]
fn queue_pairs_take_turns() {
    let mut pair = Pair::new();
    let ends: Vec<_> =
        (0..4).map(|_| pair.connect(Options { mtu: Mtu::B256, ..Options::default() })).collect();
    let (near, far) = (pair.a.buffer(256 * 256), pair.b.buffer(256 * 256));
    for (a, _) in &ends {
        pair.post_send(a, &SendWr::write(1, far.remote(0), near.all()));
    }
    pair.transmit(Side::A);
    let turns: Vec<_> =
        pair.trace.from(Side::A).map(|record| record.headers.bth().dest_qp).collect();
    let mut order = turns.clone();
    order.dedup();
    assert_eq!(turns.len(), 4 * 256);
    assert_eq!(order.len(), 16, "four turns each, of 64 packets");
}

/// At most three system calls for a 64 KiB WRITE. The n-th packet of a run has identification n.
#[test]
fn runs() {
    for mtu in Mtu::ALL {
        let mut half = Half::new(Options { mtu, ..Options::default() });
        let from = half.buffer(1 << 16);
        half.post_send(&SendWr::write(1, from.remote(0), from.all()));
        let node = &mut half.node;
        node.transmit.clear();
        node.adapter.poll_transmit(half.now, &mut node.transmit);
        let runs = node.transmit.runs();
        assert!(runs.len() <= 3, "{} runs with {} bytes a packet", runs.len(), mtu.bytes());
        assert_eq!(runs.iter().map(|run| run.count()).sum::<usize>() as u32, mtu.packets(1 << 16));
        for run in runs {
            assert!(run.count() <= UDP_SEGMENT.segments && run.range.len() <= UDP_SEGMENT.bytes);
            for index in 0..run.count() {
                let ident = Ident::Known { id: index as u16, dont_fragment: true };
                assert_eq!(run.net_header(index).ident, ident);
            }
        }
    }
}

#[test]
fn a_small_buffer_is_filled_again_and_again() {
    let mut pair = Pair::new();
    pair.a.transmit = TransmitBuffer::new(10_000, roce_transport::adapter::TransmitLimits::SINGLE);
    let (a, _b) = pair.connect(Options { mtu: Mtu::B1024, ..Options::default() });
    let (near, far) = (pair.a.buffer(100_000).fill(1), pair.b.buffer(100_000));
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    assert_eq!(far.bytes(), near.bytes());
    assert!(
        pair.trace
            .from(Side::A)
            .all(|record| record.net.ident == Ident::Known { id: 0, dont_fragment: true })
    );
}

/// Runs equal those of a smaller buffer.
#[test]
fn a_buffer_is_filled_up_to_its_bound() {
    let sent = |capacity: usize, bound: Option<usize>| {
        let mut pair = Pair::new();
        pair.a.transmit = TransmitBuffer::new(capacity, UDP_SEGMENT);
        bound.into_iter().for_each(|bound| pair.a.transmit.set_bound(bound));
        let (a, _b) = pair.connect(Options { mtu: Mtu::B1024, ..Options::default() });
        let (near, far) = (pair.a.buffer(100_000).fill(1), pair.b.buffer(100_000));
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
        let mut buffers = Vec::new();
        loop {
            let transmit = &mut pair.a.transmit;
            transmit.clear();
            pair.a.adapter.poll_transmit(pair.now, transmit);
            if transmit.is_empty() {
                return buffers;
            }
            buffers.push((transmit.bytes().len(), transmit.runs().to_vec()));
        }
    };
    let bounded = sent(40_000, Some(10_000));
    assert!(bounded.iter().all(|(length, _)| *length <= 10_000), "{bounded:?}");
    assert!(bounded.len() > 2);
    assert_eq!(bounded, sent(10_000, None));
    assert_eq!(sent(40_000, Some(1 << 20)), sent(40_000, None));
    assert_eq!(sent(40_000, Some(0)), sent(PACKET_MAX, None));
}

/// Packet and event queues stay small without time to respond.
#[test]
fn a_flood_of_all_requests_gets_few_responses() {
    let mut half = Half::new(Options { max_dest_rd_atomic: 16, ..Options::default() });
    let to = half.buffer(64);
    let mut psn = Half::THEIRS;
    for round in 0..2000u32 {
        let packet = match round % 4 {
            0 => pkt(Op::WriteOnly, psn).reth(to.remote(0), 4).payload(&[1; 4]).ask(),
            1 => pkt(Op::SendOnly, psn).ask(), // without a receive request
            2 => pkt(Op::SendOnly, psn + 100).ask(),
            _ => pkt(Op::WriteOnly, Half::THEIRS).reth(to.remote(0), 4).payload(&[1; 4]).ask(),
        };
        if half.send(&packet) == Disposition::Executed {
            psn += 1;
        }
    }
    assert!(half.take().len() <= 2);
    assert!(half.node.events.is_empty());
}

#[test]
fn idle_queue_pairs_are_quiet() {
    let mut pair = Pair::new();
    let options = Options { cqe: 1, ..Options::default() };
    let ends: Vec<_> = (0..2000).map(|_| pair.connect(options)).collect();
    let (a, b) = &ends[1234];
    pair.post_recv(b, &RecvWr::new(1, []));
    pair.post_send(a, &SendWr::send(1, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    assert_eq!(pair.a.adapter.poll_timeout(), None);
    assert_eq!(pair.b.adapter.poll_timeout(), None);
}

#[test]
fn every_queue_pair_has_its_own_timer() {
    let mut pair = Pair::new();
    pair.allow_all(&[DropReason::StaleResponse]);
    let ends: Vec<_> = (0..16u8)
        .map(|i| pair.connect(Options { timeout: 8 + i % 4, ..Options::default() }))
        .collect();
    pair.fault("drop times 32");
    for (i, (a, b)) in ends.iter().enumerate() {
        pair.post_recv(b, &RecvWr::new(1, []));
        pair.post_send(a, &SendWr::send(i as u64, Data::empty()));
    }
    pair.run();
    for (i, (a, _)) in ends.iter().enumerate() {
        assert_eq!(a.send_outcomes(), all_ok([i as u64], 0));
    }
    assert_eq!(pair.a.adapter.counters().timeouts, 32);
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let packets = |seed| {
        let mut pair = Pair::new();
        pair.a = crate::common::Node::new(pair.a.ip, seed, UDP_SEGMENT);
        let (a, b) = pair.connect(Options::default());
        let (near, far) = (pair.a.buffer(5000).fill(1), pair.b.buffer(5000));
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send(1, near.all()));
        pair.post_send(&a, &SendWr::read(2, far.remote(0), near.all()));
        pair.run();
        let records = std::mem::take(&mut pair.trace.records);
        records
            .into_iter()
            .map(|record| (record.time, record.net, record.bytes))
            .collect::<Vec<_>>()
    };
    assert!(packets(1) == packets(1));
    assert!(packets(1) != packets(2), "numbers and keys come from the seed");
}

#[test]
fn queue_pair_numbers_stay_in_their_range() {
    let mut config = roce_transport::adapter::AdapterConfig::new([1; 32]);
    config.qpns = 0x100..=0x1FF;
    let mut adapter = roce_transport::adapter::Adapter::new(config);
    let pd = adapter.alloc_pd().unwrap();
    let cq = adapter.create_cq(1).unwrap();
    let mut numbers = std::collections::BTreeSet::new();
    while let Ok(qpn) = adapter.create_qp(qp_init(QpType::Rc, &cq, pd)) {
        assert!((0x100..=0x1FF).contains(&qpn.get()) && numbers.insert(qpn));
    }
    assert_eq!(
        numbers.len(),
        128,
        "half of the range is kept free, so that a free number is soon found"
    );
}

/// The last packet to a destination requests the acknowledgement that frees credits.
#[test]
fn a_turn_is_one_run() {
    let mut pair = Pair::new();
    let options = Options { mtu: Mtu::B4096, ..Options::default() };
    let ends: Vec<_> = (0..24).map(|_| pair.connect(options).0).collect();
    let (near, far) = (pair.a.buffer(512 << 10), pair.b.buffer(512 << 10));
    for end in &ends {
        pair.post_send(end, &SendWr::write(1, far.remote(0), near.all()));
    }
    pair.run();
    for end in &ends {
        assert_eq!(end.send_outcomes(), all_ok([1], 0));
    }
    let mut turns = Vec::<(Qpn, usize)>::new();
    for record in pair.trace.from(Side::A) {
        let to = record.headers.bth().dest_qp;
        match turns.last_mut() {
            Some((last, packets)) if *last == to => *packets += 1,
            _ => turns.push((to, 1)),
        }
    }
    let short = turns.iter().filter(|(_, packets)| *packets < 4).count();
    assert!(turns.len() < 24 * 128 / 10 && short * 10 < turns.len(), "{short} of {turns:?}");
}
