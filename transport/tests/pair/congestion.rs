//! Congestion notifications (annex A17.9).

use std::time::Duration;

use roce_transport::{
    event::Disposition,
    qp::CongestionCounters,
    wire::{Ext, Headers, NetHeader, Operation as Op, Service},
    work::{Data, RecvWr, SendWr},
};

use crate::common::{End, Half, Node, Options, Pair, Side, all_ok, encode, pkt};

fn counted(ecn_marked: u64, cnp_sent: u64, cnp_received: u64) -> CongestionCounters {
    let mut counters = CongestionCounters::default();
    (counters.ecn_marked, counters.cnp_sent) = (ecn_marked, cnp_sent);
    counters.cnp_received = cnp_received;
    counters
}

#[test]
fn marked_data_causes_a_notification() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let (_, bystander) = pair.connect(Options::default());
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
    assert_eq!(
        (bth.dest_qp, bth.psn.get(), bth.becn, bth.mig_req, bth.ack_req),
        (a.qpn, 0, true, false, false)
    );
    assert_eq!((traffic_class, payload), (0xC2, 16));
    let counters = (pair.b.adapter.counters().cnp_sent, pair.a.adapter.counters().cnp_received);
    assert_eq!(counters, (1, 1), "one for the four packets, which came at once");
    assert_eq!(
        pair.a.adapter.counters().cnp_sent,
        0,
        "an acknowledgement has no data, and a notification is not answered"
    );
    // B got four marked packets, A an acknowledgement and a CNP
    let congestion = |node: &Node, end: &End| node.adapter.query_qp(end.qpn).unwrap().congestion;
    assert_eq!(congestion(&pair.b, &b), counted(4, 1, 0));
    assert_eq!(congestion(&pair.a, &a), counted(1, 0, 1));
    assert_eq!(congestion(&pair.b, &bystander), CongestionCounters::default());
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
    let (mut pair, a, b) = Pair::connected(Options::default());
    let buffer = pair.b.buffer(8);
    pair.post_recv(&b, &RecvWr::new(1, [buffer.all()]));
    pair.post_send(&a, &SendWr::send(1, Data::inline(&[1])));
    pair.run();
    assert_eq!((b.recv_outcomes(), pair.b.adapter.counters().cnp_sent), (all_ok([1], 1), 0));
}

#[test]
fn how_long_signs_are_kept() {
    let mut half = Half::new(Options::default());
    let congestion = |half: &Half| half.node.adapter.query_qp(half.qp.qpn).unwrap().congestion;
    let marked = NetHeader { traffic_class: 3, ..half.net() };
    let to = half.buffer(64);
    let packet = pkt(Op::WriteOnly, 0x200).reth(to.remote(0), 4).payload(&[1; 4]);
    let headers = Headers::new(half.bth(&packet), packet.ext).unwrap();
    half.send_as(&marked, headers, &packet.payload);
    assert_eq!(congestion(&half), counted(1, 0, 0));
    half.node.adapter.to_error(half.now, half.qp.qpn).unwrap();
    half.expect_nothing();
    assert_eq!(congestion(&half), counted(1, 0, 0), "and no notification is sent");
    half.node.adapter.to_reset(half.qp.qpn).unwrap();
    assert_eq!(congestion(&half), CongestionCounters::default());
}

#[test]
fn only_packets_of_the_peer_count() {
    let mut half = Half::new(Options::default());
    let headers = Headers::new(half.bth(&pkt(Op::SendOnly, 0x200)), Ext::None).unwrap();
    let marked = NetHeader { traffic_class: 3, ..half.net() };
    let mut bytes = encode(&marked, headers, &[1; 4]);
    *bytes.last_mut().unwrap() ^= 1;
    half.send_bytes(&marked, &bytes);
    let other_source = NetHeader { src: [10, 0, 0, 9].into(), ..marked };
    half.send_as(&other_source, headers, &[1; 4]);
    assert_eq!(
        half.node.adapter.query_qp(half.qp.qpn).unwrap().congestion,
        CongestionCounters::default()
    );
    assert_eq!(half.node.adapter.counters().ecn_marked, 2, "the adapter counts whatever arrives");
}

#[test]
fn datagrams_are_noted_only() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let to = pair.b.destination(b.qpn);
    let far = pair.b.buffer(64);
    pair.fault("mark 100%");
    for id in 0..2 {
        pair.post_recv(&b, &RecvWr::new(id, [far.all()]));
        pair.post_send(&a, &SendWr::send_to(id, to, Data::inline(&[1])));
    }
    pair.run();
    let congestion = pair.b.adapter.query_qp(b.qpn).unwrap().congestion;
    assert_eq!(congestion, counted(2, 0, 0));
    assert_eq!(pair.trace.from(Side::B).count(), 0);
    assert_eq!(b.recv_outcomes(), all_ok([0, 1], 41));
}

/// CNPs go to a WRITE's sender and a READ's responder.
#[test]
fn a_receive_buffer_that_fills_causes_a_notification() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let (near, far) = (pair.a.buffer(4000), pair.b.buffer(4000));
    for (round, sender, receiver) in [(1, Side::A, Side::B), (2, Side::B, Side::A)] {
        pair.node(receiver).fills = true;
        let request = match sender {
            Side::A => SendWr::write(round, far.remote(0), near.all()),
            Side::B => SendWr::read(round, far.remote(0), near.all()),
        };
        pair.post_send(&a, &request);
        pair.run();
        pair.node(receiver).fills = false;
        let told = pair.node(sender).adapter.counters().cnp_received;
        assert_eq!(told, 1, "one for the four packets, which came at once");
    }
    assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(4000))]);
    // B: four packets. A: four after the CNP.
    for (node, end, flagged) in [(&pair.b, &b, 4), (&pair.a, &a, 4)] {
        let counters = node.adapter.counters();
        assert_eq!((counters.receive_buffer_congestion, counters.ecn_marked), (flagged, 0));
        let congestion = node.adapter.query_qp(end.qpn).unwrap().congestion;
        assert_eq!(congestion, counted(0, 1, 1));
    }
}

/// Acknowledgements and datagrams.
#[test]
fn a_receive_buffer_that_fills_with_what_cannot_be_slowed_down() {
    let (mut pair, a, _) = Pair::connected(Options::default());
    let (from, to) = pair.datagrams(Options::default());
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(64));
    pair.a.fills = true;
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    (pair.a.fills, pair.b.fills) = (false, true);
    pair.post_recv(&to, &RecvWr::new(2, [far.all()]));
    let destination = pair.b.destination(to.qpn);
    pair.post_send(&from, &SendWr::send_to(2, destination, Data::inline(&[1])));
    pair.run();
    for node in [&pair.a, &pair.b] {
        let counters = node.adapter.counters();
        assert_eq!((counters.receive_buffer_congestion, counters.cnp_sent), (1, 0));
    }
}
