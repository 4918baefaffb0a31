//! WRITEs of a few packets as WRITE ONLYs: equal lengths form a run.

use roce_transport::{
    adapter::AdapterConfig,
    addr::Mtu,
    event::DropReason,
    wire::Operation as Op,
    work::{RecvWr, SendWr, WcStatus},
};

use crate::common::{AFTER_LOSS, End, Node, Options, Pair, Side, UDP_SEGMENT, all_ok};

const MTU: usize = 256;
const MOST: u32 = 4;

/// A splits WRITEs of up to [`MOST`] packets.
fn adapters() -> Pair {
    let mut pair = Pair::new();
    let config = AdapterConfig { write_only_packets: MOST, ..Node::config(0xA) };
    pair.a = Node::with_config(config, pair.a.ip, UDP_SEGMENT);
    pair
}

fn pair() -> (Pair, End, End) {
    let mut pair = adapters();
    let (a, b) = pair.connect(options());
    (pair, a, b)
}

fn options() -> Options {
    Options { mtu: Mtu::B256, ..Options::default() }
}

#[test]
fn a_write_of_a_few_packets_is_as_many_writes() {
    for length in [MTU + 1, 3 * MTU, MOST as usize * MTU] {
        let (mut pair, a, b) = pair();
        let (from, to) = (pair.a.buffer(length).fill(1), pair.b.buffer(length + 16));
        pair.post_send(&a, &SendWr::write(7, to.remote(8), from.all()));
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([7], 0));
        assert_eq!(b.recv_outcomes(), []);
        assert_eq!(to.part(8, length), from.bytes());
        assert_eq!((to.part(0, 8), to.part(length + 8, 8)), (vec![0; 8], vec![0; 8]));
        let packets = options().mtu.packets(length as u32) as usize;
        assert_eq!(pair.trace.operations(Side::A), vec![Op::WriteOnly; packets]);
        assert_eq!(pair.trace.operations(Side::B), [Op::Acknowledge], "of the last one");
    }
}

#[test]
fn other_messages_are_what_they_always_are() {
    let (mut pair, a, b) = pair();
    let length = MOST as usize * MTU + 1;
    let (from, to) = (pair.a.buffer(length).fill(1), pair.b.buffer(length));
    pair.post_send(&a, &SendWr::write(1, to.remote(0), from.all()));
    pair.run();
    let middles = vec![Op::WriteMiddle; MOST as usize - 1];
    assert_eq!(
        pair.trace.operations(Side::A),
        [&[Op::WriteFirst][..], &middles, &[Op::WriteLast]].concat()
    );

    let short = from.sge(0, 2 * MTU);
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_recv(&b, &RecvWr::new(2, [to.all()]));
    pair.post_send(&a, &SendWr::write(2, to.remote(0), short).with_immediate([1; 4]));
    pair.post_send(&a, &SendWr::send(3, short));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1, 2, 3], 0));
    assert_eq!(b.recv_outcomes(), all_ok([1, 2], 2 * MTU as u32), "with all its bytes");
    let rest = &pair.trace.operations(Side::A)[MOST as usize + 1..];
    assert_eq!(rest, [Op::WriteFirst, Op::WriteLastImm, Op::SendFirst, Op::SendLast]);

    let mut pair = adapters();
    let (a, _b) = pair.connect_unreliably(options());
    let (from, to) = (pair.a.buffer(length).fill(1), pair.b.buffer(length));
    pair.post_send(&a, &SendWr::write(1, to.remote(0), from.sge(0, 2 * MTU)));
    pair.run();
    assert_eq!(
        pair.trace.operations(Side::A),
        [Op::WriteFirst, Op::WriteLast],
        "all of it or none"
    );
}

#[test]
fn many_of_them_are_one_run() {
    let (mut pair, a, _b) = pair();
    let (from, to) = (pair.a.buffer(1024).fill(1), pair.b.buffer(1024));
    for id in 0..5 {
        pair.a
            .adapter
            .post_send(pair.now, a.qpn, &SendWr::write(id, to.remote(0), from.all()))
            .unwrap();
    }
    pair.a.transmit.clear();
    pair.a.adapter.poll_transmit(pair.now, &mut pair.a.transmit);
    let counts: Vec<_> = pair.a.transmit.runs().iter().map(|run| run.count()).collect();
    assert_eq!(counts, [5 * MOST as usize]);
}

#[test]
fn what_is_lost_of_them_is_sent_again() {
    for lost in 1..=8 {
        for side in [Side::A, Side::B] {
            let (mut pair, a, _b) = pair();
            pair.allow_all(AFTER_LOSS);
            let rule = pair.fault_from(side, &format!("drop nth {lost}"));
            let (from, to) = (pair.a.buffer(2048).fill(1), pair.b.buffer(2048));
            for half in [0, 1024] {
                let wr = SendWr::write(half as u64, to.remote(half), from.sge(half, 1024));
                pair.post_send(&a, &wr);
            }
            pair.run();
            assert_eq!(a.send_outcomes(), all_ok([0, 1024], 0), "{lost} of {side:?}");
            assert_eq!(to.bytes(), from.bytes(), "{lost} of {side:?}");
            if side == Side::A || lost == 1 {
                pair.assert_hit(rule);
            }
        }
    }
}

#[test]
fn what_is_before_the_one_that_is_refused_is_placed() {
    let (mut pair, a, _b) = pair();
    pair.allow(DropReason::QpState); // packets behind it
    let (from, to) = (pair.a.buffer(1024).fill(1), pair.b.buffer(600));
    pair.post_send(&a, &SendWr::write(1, to.remote(0), from.all()));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RemAccessErr))]);
    assert_eq!(to.part(0, 512), from.part(0, 512));
    assert_eq!(to.part(512, 88), [0; 88]);
}
