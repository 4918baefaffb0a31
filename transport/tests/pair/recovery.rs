//! Losses and delays cost round trips, not timeouts: NAKs, tail-loss probes, signs of life
//! (9.7.5.1.2, 9.9.2).

use std::time::Duration;

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason},
    mem::RKey,
    qp::State,
    time::ack_timeout,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Data, Remote, SendWr, WcStatus},
};

use crate::common::{
    AFTER_ONE_LOSS, End, Half, Options, Pair, Pkt, Side, ack, all_ok, nak, pkt, rnr,
};

const FAR: Remote = Remote { address: 0x5000, rkey: RKey(0x1234) };
const SEQUENCE: NakCode = NakCode::PsnSequenceError;

fn receiving(count: u64) -> Half {
    let mut half = Half::new(Options::default());
    half.post_recvs(0..count, &[]);
    half
}

fn send(psn: u32) -> Pkt {
    pkt(Op::SendOnly, psn).ask()
}

/// 0x201 overtakes 0x200: the response reports 0x201 missing.
#[test]
fn a_nak_that_has_not_left_follows_the_gap() {
    let mut half = receiving(3);
    assert!(matches!(half.send(&send(0x201)), Disposition::Refused(..)));
    assert_eq!(half.send(&send(0x200)), Disposition::Executed);
    half.expect(&[nak(SEQUENCE, 0x201, 1)]);
    assert_eq!(half.node.adapter.counters().sequence_naks_sent, 1);
    assert_eq!(half.send(&send(0x201)), Disposition::Executed);
    half.expect(&[ack(0x201, 2)]);
}

#[test]
fn a_gap_that_has_closed_altogether_is_acknowledged() {
    let mut half = receiving(4);
    for psn in [0x202, 0x200, 0x201, 0x202] {
        half.send(&send(psn));
    }
    half.expect(&[ack(0x202, 3)]);
}

#[test]
fn a_gap_is_followed_to_the_furthest_packet_that_was_dropped() {
    let mut half = receiving(5);
    for psn in [0x201, 0x203, 0x200, 0x201, 0x202] {
        half.send(&send(psn));
    }
    half.expect(&[nak(SEQUENCE, 0x203, 3)]);
    half.exchange(&send(0x203), &[ack(0x203, 4)]);
}

/// A sent NAK causes go-back-N; another would repeat it.
#[test]
fn a_nak_that_has_left_is_not_repeated() {
    let mut half = receiving(3);
    half.exchange(&send(0x201), &[nak(SEQUENCE, 0x200, 0)]);
    half.exchange(&send(0x200), &[ack(0x200, 1)]);
}

#[test]
fn a_nak_follows_the_response_to_a_read() {
    let mut half = receiving(1);
    let far = half.buffer(8).fill(3);
    half.send(&send(0x201));
    half.send(&pkt(Op::ReadRequest, 0x200).reth(far.remote(0), 8));
    let responses = half.take();
    assert_eq!(responses[0].operation, Op::ReadResponseOnly);
    assert_eq!(responses[1..], [nak(SEQUENCE, 0x201, 1)]);
}

/// The repeat is refused as busy.
#[test]
fn a_repeat_does_not_replace_a_waiting_nak() {
    let mut half = receiving(3);
    half.send(&send(0x200));
    half.take();
    half.send(&send(0x202));
    half.exchange(&send(0x200), &[nak(SEQUENCE, 0x201, 1)]);
}

/// Repeats equal the first response (9.7.5.1.2).
#[test]
fn a_repeated_response_has_the_msn_of_its_request() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let far = half.buffer(16).fill(0);
    let read = pkt(Op::ReadRequest, 0x200).reth(far.remote(0), 8);
    let add = pkt(Op::FetchAdd, 0x201).atomic(far.remote(8), 1, 0);
    let flushed = pkt(Op::AtomicWrite, 0x202).reth(far.remote(0), 8).payload(&[1; 8]);
    half.send(&read);
    half.send(&add);
    half.send(&flushed);
    let first = half.take();
    for (index, request) in [&read, &add, &flushed].into_iter().enumerate() {
        assert_eq!(half.send(request), Disposition::Duplicate);
        let again = half.take();
        assert_eq!(again[0].ext.aeth(), first[index].ext.aeth(), "{request:?}");
    }
}

/// A knows the round trip.
fn warm() -> (Pair, End, End) {
    let mut pair = Pair::new();
    pair.allow_all(AFTER_ONE_LOSS);
    // 67 ms
    let (a, b) = pair.connect(Options { mtu: Mtu::B256, timeout: 14, ..Options::default() });
    pair.post_recvs(&b, 0..10, &[]);
    pair.post_send(&a, &SendWr::send(0, Data::empty()));
    pair.run();
    a.sent();
    b.received();
    (pair, a, b)
}

fn time(pair: &mut Pair) -> Duration {
    let start = pair.now;
    pair.run();
    pair.now.since(start)
}

#[test]
fn a_lost_tail_costs_a_probe_and_no_timeout() {
    let faults = ["drop psn 257 once", "drop ack once"];
    for fault in faults {
        let (mut pair, a, _) = warm();
        pair.fault(fault);
        pair.post_send(&a, &SendWr::send(1, Data::empty()));
        let taken = time(&mut pair);
        assert!(taken < Duration::from_millis(1), "{fault}: {taken:?}");
        assert_eq!(a.send_outcomes(), all_ok([1], 0));
        let counters = pair.a.adapter.counters();
        assert_eq!((counters.timeouts, counters.tail_probes), (0, 1), "{fault}");
    }
}

#[test]
fn a_lost_end_of_a_message_costs_a_probe_and_a_nak() {
    let (mut pair, a, _) = warm();
    let (near, far) = (pair.a.buffer(1024).fill(7), pair.b.buffer(1024));
    pair.fault_from(Side::A, "drop psn 259 once");
    pair.fault_from(Side::A, "drop psn 260 once");
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    let taken = time(&mut pair);
    assert!(taken < Duration::from_millis(1), "{taken:?}");
    assert_eq!(far.bytes(), near.bytes());
    let counters = pair.a.adapter.counters();
    assert_eq!(
        (counters.timeouts, counters.tail_probes, counters.sequence_naks_received),
        (0, 1, 1)
    );
}

#[test]
fn a_read_is_probed_for_what_has_not_arrived() {
    let (mut pair, a, _) = warm();
    let (near, far) = (pair.a.buffer(1024), pair.b.buffer(1024).fill(7));
    pair.fault_from(Side::B, "drop psn 260 once");
    pair.post_send(&a, &SendWr::read(1, far.remote(0), near.all()));
    let taken = time(&mut pair);
    assert!(taken < Duration::from_millis(1), "{taken:?}");
    assert_eq!(near.bytes(), far.bytes());
    let again = pair.trace.from(Side::A).last().unwrap();
    assert_eq!(again.headers.ext().reth().unwrap().dma_length, 256);
}

/// Probes cost no retry; errors keep their time.
#[test]
fn a_peer_that_is_gone_is_probed_three_times() {
    let mut half = Half::new(Options { timeout: 14, retry_cnt: 1, ..Options::default() });
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    half.send(&ack(0x100, 1));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.take();
    let start = half.now;
    let timeout = ack_timeout(14).unwrap();
    let mut sent = Vec::new();
    while half.state() == State::Rts {
        half.advance(Duration::from_micros(100));
        sent.extend(half.take().into_iter().map(|_| half.now.since(start)));
    }
    let probes = sent.iter().filter(|&&at| at < timeout).count();
    assert_eq!((probes, half.node.adapter.counters().tail_probes), (3, 3));
    assert_eq!(half.node.adapter.counters().timeouts, 2);
    let passed = half.now.since(start);
    assert!(timeout * 3 <= passed && passed <= timeout * 3 + Duration::from_millis(1));
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(0)), (2, Err(WcStatus::RetryExcErr))]);
}

#[test]
fn without_a_timeout_there_are_no_probes() {
    let mut half = Half::new(Options { timeout: 0, ..Options::default() });
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    half.send(&ack(0x100, 1));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.take();
    assert_eq!(half.node.adapter.poll_timeout(), None);
    half.advance(Duration::from_secs(10));
    half.expect_nothing();
}

#[test]
fn a_peer_that_is_not_ready_is_not_probed() {
    let mut half = Half::new(Options { timeout: 20, ..Options::default() });
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    half.send(&rnr(20, 0x100, 0)); // 10.24 ms
    half.advance(Duration::from_millis(10));
    half.expect_nothing();
    half.advance(Duration::from_micros(240));
    half.expect(&[pkt(Op::SendOnly, 0x100).ask()]);
}

/// Codes 1 to 8: no process responds reliably within microseconds.
#[test]
fn the_shortest_timeout_is_a_millisecond() {
    for code in 1..=9 {
        let mut half = Half::new(Options { timeout: code, ..Options::default() });
        half.post_send(&SendWr::send(1, Data::empty()));
        half.take();
        let timeout = ack_timeout(code.max(8)).unwrap();
        half.advance(timeout - Duration::from_nanos(1));
        half.take();
        assert_eq!(half.node.adapter.counters().timeouts, 0, "code {code}");
        half.advance(Duration::from_nanos(1));
        assert_eq!(half.node.adapter.counters().timeouts, 1, "code {code}");
    }
}

/// The repeated response comes behind that data.
#[test]
fn data_behind_a_gap_costs_no_retry() {
    let options = Options { mtu: Mtu::B256, timeout: 8, retry_cnt: 1, ..Options::default() };
    let mut half = Half::new(options);
    let near = half.buffer(100 * 256);
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.take();
    let middle = |psn| pkt(Op::ReadResponseMiddle, psn).payload(&[1; 256]);
    half.send(&pkt(Op::ReadResponseFirst, 0x100).aeth(Syndrome::ACK, 1).payload(&[1; 256]));
    half.send(&middle(0x102));
    assert_eq!(half.take().len(), 1, "the rest is asked for again");
    let step = ack_timeout(8).unwrap() / 2;
    for psn in 0x103..0x130 {
        half.advance(step);
        assert_eq!(half.send(&middle(psn)), Disposition::Dropped(DropReason::ReadResponseGap));
    }
    assert_eq!(half.node.adapter.counters().timeouts, 0);
    // after silence the timer runs on
    half.advance(step * 2);
    assert_eq!(half.node.adapter.counters().timeouts, 1);
}

#[test]
fn useless_responses_count_for_a_while_only() {
    let options = Options { mtu: Mtu::B256, timeout: 8, retry_cnt: 0, ..Options::default() };
    let mut half = Half::new(options);
    let near = half.buffer(512);
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.take();
    let start = half.now;
    let timeout = ack_timeout(8).unwrap();
    while half.state() == State::Rts {
        half.send(&pkt(Op::ReadResponseOnly, 0xFF).aeth(Syndrome::ACK, 1));
        half.advance(timeout / 2);
        half.take();
        assert!(half.now.since(start) < timeout * 100);
    }
    assert!(half.now.since(start) > timeout * 60);
}
