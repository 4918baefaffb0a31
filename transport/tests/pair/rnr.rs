//! RNR NAK: the peer gets no request until its timer ends (9.7.5.2.8, 9.9.2).

use std::time::Duration;

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason, Refusal},
    qp::State,
    time::{ack_timeout, rnr_timer},
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Data, RecvWr, SendWr, WcStatus},
};

use crate::common::{Half, NULL_REMOTE, Options, Pair, Side, ack, all_ok, nak, pattern, pkt, rnr};

const NANO: Duration = Duration::from_nanos(1);

#[test]
fn every_timer_code_is_honoured_to_the_nanosecond() {
    for timer in 0..32 {
        let mut half = Half::new(Options::default());
        half.post_send(&SendWr::send(1, Data::empty()));
        let packets = half.take();
        let disposition = half.send(&rnr(timer, 0x100, 0));
        assert_eq!(disposition, Disposition::NakReceived(Syndrome::RnrNak { timer }));
        half.advance(rnr_timer(timer) - NANO);
        half.expect_nothing();
        half.advance(NANO);
        half.expect(&packets);
    }
}

#[test]
fn a_responder_asks_for_the_time_it_was_given() {
    for min_rnr_timer in 0..32 {
        let mut half = Half::new(Options { min_rnr_timer, ..Options::default() });
        let syndrome = Syndrome::RnrNak { timer: min_rnr_timer };
        let disposition = half.send(&pkt(Op::SendOnly, 0x200).ask());
        assert_eq!(disposition, Disposition::Refused(syndrome, Refusal::NoReceiveRequest));
        half.expect(&[rnr(min_rnr_timer, 0x200, 0)]);
        assert_eq!(half.state(), State::Rts);
    }
}

#[test]
fn a_late_receive_request_is_in_time() {
    let mut pair = Pair::new();
    pair.allow(DropReason::OutOfSequence);
    let (a, b) = pair.connect(Options { mtu: Mtu::B256, min_rnr_timer: 14, ..Options::default() });
    let (near, far) = (pair.a.buffer(1000).fill(1), pair.b.buffer(1000));
    pair.post_send(&a, &SendWr::send(1, near.all()));
    pair.run_for(Duration::from_millis(1));
    assert_eq!((a.sent(), b.received()), (vec![], vec![]));
    pair.post_recv(&b, &RecvWr::new(2, [far.all()]));
    pair.run();
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (all_ok([1], 0), all_ok([2], 1000)));
    assert_eq!(far.bytes(), near.bytes());
    // 1.28 ms: one RNR NAK suffices
    assert_eq!(pair.b.adapter.counters().rnr_naks_sent, 1);
    assert_eq!(
        pair.a.adapter.counters().timeouts,
        0,
        "the acknowledge timer stands still meanwhile"
    );
}

#[test]
fn an_rnr_retry_count_of_n_is_n_plus_one_transmissions() {
    for rnr_retry in 0..7 {
        let (mut pair, a, b) = Pair::connected(Options { rnr_retry, ..Options::default() });
        pair.post_send(&a, &SendWr::send(1, Data::empty()));
        pair.post_send(&a, &SendWr::write(2, NULL_REMOTE, Data::empty()));
        pair.allow(DropReason::OutOfSequence);
        pair.run();
        assert_eq!(pair.trace.count(Side::A, Op::SendOnly), usize::from(rnr_retry) + 1);
        assert_eq!(
            a.send_outcomes(),
            [(1, Err(WcStatus::RnrRetryExcErr)), (2, Err(WcStatus::WrFlushErr))]
        );
        assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Rts));
    }
}

#[test]
fn seven_is_without_limit() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect(Options {
        rnr_retry: 7,
        retry_cnt: 0,
        min_rnr_timer: 1,
        ..Options::default()
    });
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run_for(Duration::from_millis(10));
    assert!(pair.a.adapter.counters().rnr_naks_received > 500);
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
}

#[test]
fn not_ready_goes_before_out_of_sequence() {
    let mut half = Half::new(Options::default());
    half.exchange(&pkt(Op::SendOnly, 0x200).ask(), &[rnr(12, 0x200, 0)]);
    for psn in [0x201, 0x202] {
        half.expect_drop(&pkt(Op::SendOnly, psn).ask(), DropReason::OutOfSequence);
    }
    half.expect_nothing();

    // rxe sends a NAK right behind its RNR NAK
    half.post_send(&SendWr::send(1, Data::empty()));
    half.post_send(&SendWr::send(2, Data::empty()));
    let packets = half.take();
    half.send(&rnr(12, 0x100, 0));
    half.expect_drop(&nak(NakCode::PsnSequenceError, 0x100, 0), DropReason::RecoveryUnderWay);
    half.expect_nothing();
    half.advance(rnr_timer(12));
    half.expect(&packets);
}

/// The NAK reports packets in flight: the retry counter does not limit waiting for a receiver.
#[test]
fn a_sequence_nak_after_the_pause_is_late() {
    let mut half = Half::new(Options { retry_cnt: 1, ..Options::default() });
    half.post_send(&SendWr::send(1, Data::empty()));
    half.post_send(&SendWr::send(2, Data::empty()));
    let packets = half.take();
    for _ in 0..10 {
        half.send(&rnr(12, 0x100, 0));
        half.advance(rnr_timer(12));
        half.expect(&packets);
        half.expect_drop(&nak(NakCode::PsnSequenceError, 0x100, 0), DropReason::RecoveryUnderWay);
        half.expect_nothing();
    }
    half.send(&ack(0x100, 1));
    half.exchange(&nak(NakCode::PsnSequenceError, 0x101, 1), &packets[1..]);
    half.send(&ack(0x101, 2));
    assert_eq!(half.qp.send_outcomes(), all_ok([1, 2], 0));
}

/// The requester counts RNR NAKs.
#[test]
fn a_packet_that_comes_again_is_refused_again() {
    let mut half = Half::new(Options::default());
    for _ in 0..3 {
        half.exchange(&pkt(Op::SendOnly, 0x200).ask(), &[rnr(12, 0x200, 0)]);
    }
    half.post_recv(&RecvWr::new(1, []));
    half.exchange(&pkt(Op::SendOnly, 0x200).ask(), &[ack(0x200, 1)]);
}

#[test]
fn a_write_with_immediate_waits_at_its_last_packet() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(600);
    let bytes = pattern(1, 600);
    let last = pkt(Op::WriteLastImm, 0x202).imm([1, 2, 3, 4]).payload(&bytes[512..]).ask();
    assert_eq!(
        half.send(&pkt(Op::WriteFirst, 0x200).reth(to.remote(0), 600).payload(&bytes[..256])),
        Disposition::Executed
    );
    assert_eq!(
        half.send(&pkt(Op::WriteMiddle, 0x201).payload(&bytes[256..512])),
        Disposition::Executed
    );
    half.exchange(&last, &[rnr(12, 0x202, 0)]);
    assert_eq!(to.part(0, 512), bytes[..512]);
    half.post_recv(&RecvWr::new(1, []));
    half.exchange(&last, &[ack(0x202, 1)]);
    assert_eq!(to.bytes(), bytes);
    assert_eq!(half.qp.recv_outcomes(), all_ok([1], 600));

    let only =
        pkt(Op::WriteOnlyImm, 0x203).imm([5, 6, 7, 8]).reth(to.remote(0), 3).payload(b"abc").ask();
    half.exchange(&only, &[rnr(12, 0x203, 1)]);
    half.post_recv(&RecvWr::new(2, []));
    half.exchange(&only, &[ack(0x203, 2)]);
    assert_eq!(to.part(0, 3), b"abc");
    assert_eq!(half.qp.recv_outcomes(), all_ok([2], 3));
}

#[test]
fn a_write_with_immediate_is_resent_from_its_last_packet() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(600).fill(1);
    half.post_send(&SendWr::write(1, from.remote(0), from.all()).with_immediate([1, 2, 3, 4]));
    let packets = half.take();
    half.send(&rnr(1, 0x102, 0));
    half.advance(rnr_timer(1));
    half.expect(&packets[2..]);
}

/// The next packet starts the acknowledge timer.
#[test]
fn an_acknowledgement_during_the_pause_does_not_make_it_a_timeout() {
    let mut half =
        Half::new(Options { timeout: 8, retry_cnt: 0, mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(700);
    half.post_send(&SendWr::send(1, from.all()));
    half.take();
    half.send(&rnr(20, 0x100, 0)); // 10.24 ms, ten times the acknowledge timeout
    half.send(&ack(0x100, 0)); // not lost, but overtaken
    half.advance(rnr_timer(20));
    assert_eq!(half.qp.sent(), []);
    assert_eq!(half.take().len(), 2);
    assert_eq!(half.node.adapter.counters().timeouts, 0);
    half.advance(ack_timeout(8).unwrap());
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::RetryExcErr))]);
}

#[test]
fn nothing_new_is_sent_during_the_pause() {
    let mut half = Half::with_sent(1);
    half.send(&rnr(12, 0x100, 0));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.expect_nothing();
    half.advance(rnr_timer(12));
    assert_eq!(half.take().len(), 2);
}
