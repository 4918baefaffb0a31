//! Congestion (annex A17.9): who receives marked packets tells their sender.

use std::time::Duration;

use roce_transport::{
    event::Disposition,
    wire::{Headers, NetHeader, Operation as Op, Service},
    work::{Data, RecvWr, SendWr},
};

use crate::harness::{Half, Options, Pair, Side, all_ok, pkt};

#[test]
fn marked_data_is_answered_with_a_notification() {
    let mut pair = Pair::new();
    let (a, _b) = pair.connect(Options::default());
    let (near, far) = (pair.a.buffer(4000), pair.b.buffer(4000));
    pair.fault("mark 100%");
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    let notifications: Vec<_> = pair
        .trace
        .from(Side::B)
        .filter(|record| record.headers.bth().opcode.service() == Service::Cnp)
        .map(|record| (*record.headers.bth(), record.net.traffic_class, record.payload))
        .collect();
    let [(bth, traffic_class, payload)] = notifications[..] else { panic!("{notifications:?}") };
    assert_eq!((bth.dest_qp, bth.psn.get(), bth.becn, bth.mig_req, bth.ack_req), (a.qpn, 0, true, false, false));
    assert_eq!((traffic_class, payload), (0xC2, 16));
    let counters = (pair.b.adapter.counters().cnp_sent, pair.a.adapter.counters().cnp_received);
    assert_eq!(counters, (1, 1), "one for the four packets, which came at once");
    assert_eq!(pair.a.adapter.counters().cnp_sent, 0, "an acknowledgement has no data, and a notification is not answered");
}

#[test]
fn not_more_often_than_every_50_microseconds() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(64);
    let marked = NetHeader { traffic_class: 3, ..half.net() };
    let mut sent = 0;
    for psn in 0..10 {
        let packet = pkt(Op::WriteOnly, 0x200 + psn).reth(to.remote(0), 4).payload(&[1; 4]);
        let headers = Headers::new(half.bth(&packet), packet.ext).unwrap();
        assert_eq!(half.send_as(&marked, headers, &packet.payload), Disposition::Executed);
        half.node.transmit.clear();
        half.node.adapter.poll_transmit(half.now, &mut half.node.transmit);
        sent += half.node.transmit.datagrams().count();
        half.advance(Duration::from_micros(20));
    }
    // at 0, 60, 120 and 180 µs
    assert_eq!((sent, half.node.adapter.counters().cnp_sent), (4, 4));
}

#[test]
fn unmarked_data_is_not() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect(Options::default());
    let buffer = pair.b.buffer(8);
    pair.post_recv(&b, &RecvWr::new(1, [buffer.all()]));
    pair.post_send(&a, &SendWr::send(1, Data::inline(&[1])));
    pair.run();
    assert_eq!((b.recv_outcomes(), pair.b.adapter.counters().cnp_sent), (all_ok([1], 1), 0));
}
