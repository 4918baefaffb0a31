//! Retransmission after a NAK, a response that shows the loss, or a timeout (9.7.3, 9.9.2).

use std::time::Duration;

use roce_transport::{
    adapter::{AdapterConfig, Limits},
    addr::Mtu,
    event::{Disposition, DropReason},
    qp::AckTimer,
    time::ack_timeout,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Data, RecvWr, SendWr, WcStatus},
};

use crate::common::{
    AFTER_ONE_LOSS, Buffer, End, Half, Node, Options, Pair, Side, UDP_SEGMENT, ack, all_ok, nak,
    pattern, pkt,
};

const MTU: usize = 256;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

const KINDS: [Kind; 5] = [Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm, Kind::Read];

/// A message from A to B (READ: B to A).
struct Transfer {
    pair: Pair,
    a: End,
    b: End,
    length: usize,
    target: Buffer,
    /// Receive completions.
    received: usize,
}

impl Transfer {
    fn new(kind: Kind, length: usize) -> Self {
        let mut pair = Pair::new();
        pair.allow_all(AFTER_ONE_LOSS);
        let (a, b) = pair.connect(Options { mtu: Mtu::B256, ..Options::default() });
        let (near, far) = (pair.a.buffer(length), pair.b.buffer(length));
        let (source, target) =
            if matches!(kind, Kind::Read) { (&far, &near) } else { (&near, &far) };
        source.put(0, &pattern(9, length));
        let wr = match kind {
            Kind::Send | Kind::SendImm => SendWr::send(1, near.all()),
            Kind::Write | Kind::WriteImm => SendWr::write(1, far.remote(0), near.all()),
            Kind::Read => SendWr::read(1, far.remote(0), near.all()),
        };
        let immediate = matches!(kind, Kind::SendImm | Kind::WriteImm);
        let received = usize::from(immediate || matches!(kind, Kind::Send));
        let sges = if matches!(kind, Kind::WriteImm) { vec![] } else { vec![far.all()] };
        for id in 0..2 {
            // the second stays posted
            pair.post_recv(&b, &RecvWr::new(id, sges.clone()));
        }
        pair.post_send(&a, &if immediate { wr.with_immediate([1, 2, 3, 4]) } else { wr });
        let target = target.clone();
        Self { pair, a, b, length, target, received }
    }

    /// Another message shows a gap.
    fn then_another(&mut self) -> &mut Self {
        let far = self.pair.b.buffer(1);
        let near = self.pair.a.buffer(1);
        self.pair.post_send(&self.a, &SendWr::write(2, far.remote(0), near.all()));
        self
    }

    fn run(&mut self) {
        self.pair.run();
        let done = self.a.sent();
        assert!(!done.is_empty() && done.iter().all(|wc| wc.result.is_ok()), "{done:?}");
        assert_eq!(self.b.received().len(), self.received, "receive requests used");
        assert_eq!(self.target.bytes(), pattern(9, self.length));
    }

    fn timeouts(&self) -> u64 {
        self.pair.a.adapter.counters().timeouts
    }
}

fn places(kind: Kind, length: usize) -> Vec<u32> {
    if matches!(kind, Kind::Read) || length <= MTU {
        vec![0]
    } else {
        vec![0, 1, (length.div_ceil(MTU) - 1) as u32]
    }
}

#[test]
fn a_lost_request_packet_with_more_behind_it_comes_again_after_a_nak() {
    for kind in KINDS {
        for length in [100, 4 * MTU + 5] {
            for place in places(kind, length) {
                let mut transfer = Transfer::new(kind, length);
                let rule =
                    transfer.pair.fault_from(Side::A, &format!("drop psn {} once", 0x100 + place));
                transfer.then_another().run();
                transfer.pair.assert_hit(rule);
                assert_eq!(transfer.timeouts(), 0, "{kind:?} of {length} without packet {place}");
                assert_eq!(transfer.pair.b.adapter.counters().sequence_naks_sent, 1);
                assert_eq!(transfer.pair.a.adapter.counters().sequence_naks_received, 1);
            }
        }
    }
}

#[test]
fn the_last_packet_of_all_comes_again_after_a_timeout() {
    for kind in KINDS {
        for length in [100, 4 * MTU + 5] {
            let last = places(kind, length).pop().unwrap();
            let mut transfer = Transfer::new(kind, length);
            let rule =
                transfer.pair.fault_from(Side::A, &format!("drop psn {} once", 0x100 + last));
            transfer.run();
            transfer.pair.assert_hit(rule);
            assert_eq!(transfer.timeouts(), 1);
            assert_eq!(transfer.pair.b.adapter.counters().sequence_naks_sent, 0);
        }
    }
}

#[test]
fn a_lost_acknowledgement_costs_a_timeout_and_nothing_else() {
    for kind in [Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm] {
        let mut transfer = Transfer::new(kind, 3 * MTU);
        let rule = transfer.pair.fault("drop ack once");
        transfer.run();
        transfer.pair.assert_hit(rule);
        assert_eq!(transfer.timeouts(), 1);
        assert_eq!(transfer.pair.b.adapter.counters().duplicate_requests, 3);
    }
}

#[test]
fn a_later_acknowledgement_makes_up_for_a_lost_one() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    pair.post_recvs(&b, 0..2, &[]);
    let rule = pair.fault("drop ack nth 1");
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run_for(Duration::from_micros(100));
    assert_eq!(a.sent(), []);
    pair.post_send(&a, &SendWr::send(2, Data::empty()));
    pair.run();
    pair.assert_hit(rule);
    assert_eq!(a.send_outcomes(), all_ok([1, 2], 0));
    assert_eq!(pair.a.adapter.counters().retransmitted_packets, 0);
}

#[test]
fn a_lost_nak_costs_a_timeout() {
    let mut transfer = Transfer::new(Kind::Send, 4 * MTU);
    let lost = transfer.pair.fault_from(Side::A, "drop psn 0x101 once");
    let nak = transfer.pair.fault("drop nak once");
    transfer.run();
    transfer.pair.assert_hit(lost);
    transfer.pair.assert_hit(nak);
    assert_eq!(transfer.timeouts(), 1);
}

/// Later responses imply a NAK; the last needs the timer.
#[test]
fn a_lost_read_response_is_asked_for_again() {
    for (length, packets) in [(100, 1), (4 * MTU + 5, 5)] {
        for place in 0..packets {
            for more in [false, true] {
                let mut transfer = Transfer::new(Kind::Read, length);
                let rule =
                    transfer.pair.fault_from(Side::B, &format!("drop psn {} once", 0x100 + place));
                if more {
                    transfer.then_another();
                }
                transfer.run();
                transfer.pair.assert_hit(rule);
                let is_last = place + 1 == packets && !more;
                // other packets gave a round-trip sample
                let is_probed = is_last && packets > 1;
                assert_eq!(transfer.timeouts(), u64::from(is_last && !is_probed));
                let probes = transfer.pair.a.adapter.counters().tail_probes;
                assert_eq!(probes, u64::from(is_probed));
                assert_eq!(transfer.pair.a.adapter.counters().implied_naks, u64::from(!is_last));
                let again = transfer
                    .pair
                    .trace
                    .from(Side::A)
                    .filter(|record| record.operation() == Op::ReadRequest)
                    .last();
                let reth = again.unwrap().headers.ext().reth().unwrap();
                assert_eq!(reth.dma_length as usize, length - place as usize * MTU);
            }
        }
    }
}

#[test]
fn going_back_resumes_in_the_middle_of_a_message() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(4 * MTU).fill(3);
    let target = from.remote(0);
    half.post_send(&SendWr::write(1, target, from.all()));
    half.post_send(&SendWr::send(2, Data::empty()));
    let sent = half.take();
    assert_eq!(sent[0], pkt(Op::WriteFirst, 0x100).reth(target, 1024).payload(&from.part(0, MTU)));
    assert_eq!(
        half.send(&nak(NakCode::PsnSequenceError, 0x102, 0)),
        Disposition::NakReceived(SEQUENCE_ERROR)
    );
    half.expect(&sent[2..]);
    assert_eq!(
        sent[2..].iter().map(|packet| packet.operation).collect::<Vec<_>>(),
        [Op::WriteMiddle, Op::WriteLast, Op::SendOnly]
    );
    half.send(&ack(0x104, 2));
    assert_eq!(half.qp.send_outcomes(), all_ok([1, 2], 0));
}

const SEQUENCE_ERROR: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

#[test]
fn a_nak_acknowledges_what_came_before() {
    let mut half = Half::with_sent(3);
    half.send(&nak(NakCode::PsnSequenceError, 0x101, 1));
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 0));
    half.expect(&[pkt(Op::SendOnly, 0x101).ask(), pkt(Op::SendOnly, 0x102).ask()]);
}

#[test]
fn a_repeated_nak_does_not_send_everything_again() {
    let mut half = Half::with_sent(2);
    half.send(&nak(NakCode::PsnSequenceError, 0x100, 0));
    assert_eq!(half.take().len(), 2);
    half.expect_drop(&nak(NakCode::PsnSequenceError, 0x100, 0), DropReason::RecoveryUnderWay);
    half.expect_nothing();
}

#[test]
fn one_nak_for_each_gap() {
    let mut half = Half::new(Options::default());
    half.post_recvs(0..10, &[]);
    let packet = |psn| pkt(Op::SendOnly, psn).ask();
    half.exchange(&packet(0x200), &[ack(0x200, 1)]);
    half.exchange(&packet(0x202), &[nak(NakCode::PsnSequenceError, 0x201, 1)]);
    for psn in 0x203..0x206 {
        assert_eq!(half.send(&packet(psn)), Disposition::Dropped(DropReason::OutOfSequence));
    }
    half.expect_nothing();
    half.exchange(&packet(0x201), &[ack(0x201, 2)]);
    half.exchange(&packet(0x203), &[nak(NakCode::PsnSequenceError, 0x202, 2)]);
    assert_eq!(half.node.adapter.counters().sequence_naks_sent, 2);
}

#[test]
fn a_retry_count_of_n_is_n_plus_one_transmissions() {
    for retry_cnt in 0..=7 {
        let mut pair = Pair::new();
        let options = Options { retry_cnt, timeout: 8, ..Options::default() };
        let (a, b) = pair.connect(options);
        pair.post_send(&a, &SendWr::send(1, Data::empty()));
        pair.post_send(&a, &SendWr::send(2, Data::empty()));
        pair.fault("drop request");
        let start = pair.now;
        pair.run();
        assert_eq!(
            pair.trace.psns(Side::A).iter().filter(|&&psn| psn == 0x100).count(),
            usize::from(retry_cnt) + 1
        );
        assert_eq!(
            a.send_outcomes(),
            [(1, Err(WcStatus::RetryExcErr)), (2, Err(WcStatus::WrFlushErr))]
        );
        // timer: 1, 2, then 4 timeouts
        let waited =
            ack_timeout(8).unwrap() * [1, 3, 7, 11, 15, 19, 23, 27][usize::from(retry_cnt)];
        assert_eq!(pair.now.since(start), waited);
        assert_eq!(pair.state(&a), roce_transport::qp::State::Err);
        assert_eq!(pair.state(&b), roce_transport::qp::State::Rts, "the peer knows nothing of it");
    }
}

/// Within twice the configured time from 0.5 s on, else four times, for busy peers.
#[test]
fn a_silent_peer_is_given_up_in_time() {
    for (timeout, retry_cnt) in (1..=31).flat_map(|code| [0, 1, 5, 7].map(|count| (code, count))) {
        let mut pair = Pair::new();
        let (a, _) = pair.connect(Options { retry_cnt, timeout, ..Options::default() });
        pair.post_send(&a, &SendWr::send(1, Data::empty()));
        pair.fault("drop request");
        let start = pair.now;
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RetryExcErr))]);
        let (waited, tries) = (pair.now.since(start), u32::from(retry_cnt) + 1);
        // no requester waits less than 1 ms
        let promised = ack_timeout(timeout.max(8)).unwrap() * tries;
        let most = promised * if timeout >= 17 { 2 } else { 4 };
        assert!((promised..=most).contains(&waited), "{timeout}, {retry_cnt}: {waited:?}");
    }
}

/// ConnectX-6 with 7 retries: 1.71 timeouts each, at least those of code 16.
#[test]
fn a_silent_peer_of_an_adapter_with_a_timer_of_its_own() {
    let ack_timer = AckTimer { least: 16, percent: 171, backs_off: false };
    for (timeout, least, most) in [(1, 3.5, 3.8), (14, 3.5, 3.8), (16, 3.5, 3.8), (20, 58.5, 58.8)]
    {
        let mut pair = Pair::new();
        let config = AdapterConfig {
            limits: Limits { ack_timer, ..Limits::default() },
            ..Node::config(0xA)
        };
        pair.a = Node::with_config(config, pair.a.ip, UDP_SEGMENT);
        let (a, _) = pair.connect(Options { retry_cnt: 7, timeout, ..Options::default() });
        pair.post_send(&a, &SendWr::send(1, Data::empty()));
        pair.fault("drop request");
        let start = pair.now;
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RetryExcErr))]);
        let waited = pair.now.since(start).as_secs_f64();
        assert!((least..most).contains(&waited), "{timeout}: {waited}");
    }
}

#[test]
fn progress_restores_the_retry_count() {
    let (mut pair, a, b) = Pair::connected(Options { retry_cnt: 1, ..Options::default() });
    for psn in 0x100..0x106 {
        pair.fault_from(Side::A, &format!("drop psn {psn} once"));
        pair.post_recv(&b, &RecvWr::new(psn, []));
        pair.post_send(&a, &SendWr::send(psn, Data::empty()));
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([psn], 0));
    }
    assert_eq!(pair.a.adapter.counters().timeouts, 6);
}

#[test]
fn without_a_timeout_nothing_comes_again_by_itself() {
    let (mut pair, a, _b) = Pair::connected(Options { timeout: 0, ..Options::default() });
    pair.fault("drop request");
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run();
    assert_eq!(a.sent(), []);
    assert_eq!(pair.trace.records.len(), 1);
}

#[test]
fn the_psn_wraps_in_the_middle_of_a_message() {
    for lost in 0..10u32 {
        let mut pair = Pair::new();
        let start = 0xFF_FFFB;
        let (a, b) = pair.connect(Options {
            mtu: Mtu::B256,
            a_psn: start,
            b_psn: start,
            ..Options::default()
        });
        let (near, far) = (pair.a.buffer(10 * MTU).fill(1), pair.b.buffer(10 * MTU));
        let back = pair.a.buffer(10 * MTU);
        pair.allow_all(&[
            DropReason::OutOfSequence,
            DropReason::ReadResponseGap,
            DropReason::StaleResponse,
        ]);
        let request =
            pair.fault_from(Side::A, &format!("drop psn {} once", (start + lost) & 0xFF_FFFF));
        let response = pair.fault_from(
            Side::B,
            &format!("drop psn {} read-response once", (start + 10 + lost) & 0xFF_FFFF),
        );
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send(1, near.all()));
        pair.post_send(&a, &SendWr::read(2, far.remote(0), back.all()));
        pair.run();
        pair.assert_hit(request);
        pair.assert_hit(response);
        assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(2560))]);
        assert_eq!(back.bytes(), near.bytes());
    }
}

#[test]
fn a_late_acknowledgement_spares_what_it_covers() {
    let mut half = Half::new(Options { timeout: 8, ..Options::default() });
    half.post_sends(1..=3);
    half.take();
    half.advance(ack_timeout(8).unwrap());
    half.exchange(&ack(0x101, 2), &[pkt(Op::SendOnly, 0x102).ask()]);
}
