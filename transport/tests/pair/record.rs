//! The decision record, compared with the network's.

use std::time::Duration;

use roce_transport::{
    adapter::{Adapter, ObjectError},
    addr::{Mtu, Qpn},
    event::{Disposition, DropReason, Refusal},
    explain::{Histories, KEPT},
    mem::{AccessError, RKey},
    psn::Psn,
    qp::{ModifyError, PostError, QpType, State},
    time::{Instant, ack_timeout, rnr_timer},
    trace::{
        Call, CallError, Failure, Loss, Part, Reason, Record, Recovery, Timer, Trace, What, Why,
        WindowCause,
    },
    wire::{Datagram, NakCode, Syndrome},
    work::{Cause, RecvWr, Remote, SendWr, WcStatus},
};

use crate::common::{End, Node, Options, Pair, Recorded, Side, net, pattern, qp_init, to_group};

const A_PSN: u32 = 0x100;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

fn options() -> Options {
    Options { mtu: Mtu::B256, a_psn: A_PSN, ..Options::default() }
}

fn recorded() -> (Pair, End, End) {
    let mut pair = Pair::new().recorded();
    let (a, b) = pair.connect(options());
    (pair, a, b)
}

fn histories(records: &[Record]) -> Histories {
    let mut histories = Histories::default();
    records.iter().for_each(|record| drop(histories.observe(record, || None)));
    histories
}

fn sent(pair: &mut Pair, side: Side) -> Vec<(u32, Reason)> {
    let of = |record: &Record| match &record.what {
        What::Sent { packet, why: Why::Queue(reason) } => {
            Some((packet.headers.bth().psn.get(), *reason))
        }
        _ => None,
    };
    pair.record(side).iter().filter_map(of).collect()
}

fn arrived(pair: &mut Pair, side: Side) -> Vec<(u32, Disposition)> {
    let of = |record: &Record| match &record.what {
        What::Arrived { packet, disposition } => {
            Some((packet.headers.bth().psn.get(), *disposition))
        }
        _ => None,
    };
    pair.record(side).iter().filter_map(of).collect()
}

/// Without calls and windows.
fn decisions(pair: &mut Pair, side: Side) -> Vec<What> {
    let skipped = |what: &What| {
        matches!(
            what,
            What::Sent { .. } | What::Arrived { .. } | What::Call { .. } | What::Window { .. }
        )
    };
    let whats = pair.record(side).iter().map(|record| record.what.clone());
    whats.filter(|what| !skipped(what)).filter(|what| !is_set_up(what)).collect()
}

fn is_set_up(what: &What) -> bool {
    matches!(what, What::State { failure: Failure::Asked, .. })
}

fn first(wr_id: u64, index: u32, of: u32) -> Reason {
    Reason::First(Part { wr_id, index, of })
}

fn again(wr_id: u64, index: u32, of: u32, loss: Loss) -> Reason {
    Reason::Retransmit(Part { wr_id, index, of }, loss)
}

fn acknowledged(psn: u32) -> What {
    What::Acknowledged { before: Psn::new(psn) }
}

#[test]
fn a_message_without_losses() {
    let (mut pair, a, b) = recorded();
    let (near, far) = (pair.a.buffer(600), pair.b.buffer(600));
    pair.post_recv(&b, &RecvWr::new(7, [far.all()]));
    pair.post_send(&a, &SendWr::send(3, near.all()));
    pair.run();
    assert_eq!(
        sent(&mut pair, Side::A),
        [(A_PSN, first(3, 0, 3)), (A_PSN + 1, first(3, 1, 3)), (A_PSN + 2, first(3, 2, 3))]
    );
    assert_eq!(
        arrived(&mut pair, Side::B),
        [A_PSN, A_PSN + 1, A_PSN + 2].map(|psn| (psn, Disposition::Executed))
    );
    let last = Psn::new(A_PSN + 2);
    assert_eq!(sent(&mut pair, Side::B), [(A_PSN + 2, Reason::Acknowledge(last))]);
    assert_eq!(
        arrived(&mut pair, Side::A),
        [(A_PSN + 2, Disposition::Acknowledged { completed: 1 })]
    );
    let [What::Completed { wr_id: 3, result: Ok(_) }, answered] =
        &decisions(&mut pair, Side::A)[..]
    else {
        panic!("{:?}", decisions(&mut pair, Side::A));
    };
    assert_eq!(*answered, acknowledged(A_PSN + 3));
    let done = decisions(&mut pair, Side::B);
    assert!(
        matches!(done[..], [What::Completed { wr_id: 7, result: Ok(ok) }] if ok.byte_len == 600)
    );
}

#[test]
fn causes_come_before_what_follows() {
    let (mut pair, a, b) = recorded();
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    pair.b.adapter.to_error(pair.now, b.qpn).unwrap();
    pair.post_send(&a, &SendWr::write(2, far.remote(0), near.all()));
    let kinds = |record: &Record| match &record.what {
        What::Call { call, .. } => call.to_string(),
        What::Sent { .. } => "sent".into(),
        What::Arrived { .. } => "arrived".into(),
        What::Completed { .. } => "completed".into(),
        What::Acknowledged { .. } => "acknowledged".into(),
        What::State { from, to, .. } => format!("{from} to {to}"),
        other => other.to_string(),
    };
    let a_kinds: Vec<_> = pair.record(Side::A).iter().map(kinds).collect();
    assert_eq!(
        a_kinds,
        [
            "create_qp RC",
            "modify_qp to INIT",
            "RESET to INIT",
            "modify_qp to RTR",
            "INIT to RTR",
            "modify_qp to RTS",
            "RTR to RTS",
            "post_send 1: RDMA WRITE of 8 B, SIGNALED",
            "sent",
            "arrived",
            "completed",
            "acknowledged",
            "post_send 2: RDMA WRITE of 8 B, SIGNALED",
        ]
    );
    let b_kinds: Vec<_> = pair.record(Side::B).iter().map(kinds).collect();
    assert_eq!(b_kinds[7..], ["arrived", "sent", "modify_qp to ERR", "RTS to ERR"]);
}

#[test]
fn a_gap_a_nak_and_the_rest_again() {
    let (mut pair, a, _) = recorded();
    pair.allow(DropReason::OutOfSequence);
    let (near, far) = (pair.a.buffer(1024), pair.b.buffer(1024));
    pair.fault("drop write middle nth 1");
    pair.post_send(&a, &SendWr::write(9, far.remote(0), near.all()));
    pair.run();
    let gap = A_PSN + 1;
    let mut expected: Vec<_> = (0..4).map(|n| (A_PSN + n, first(9, n, 4))).collect();
    expected.extend((1..4).map(|n| (A_PSN + n, again(9, n, 4, Loss::Nak))));
    assert_eq!(sent(&mut pair, Side::A), expected);
    assert_eq!(
        arrived(&mut pair, Side::B)[..3],
        [
            (A_PSN, Disposition::Executed),
            (A_PSN + 2, Disposition::Refused(SEQUENCE, Refusal::MissingPacket)),
            (A_PSN + 3, Disposition::Dropped(DropReason::OutOfSequence)),
        ]
    );
    let b_sent = sent(&mut pair, Side::B);
    assert_eq!(b_sent[0], (gap, Reason::Negative(Psn::new(gap), SEQUENCE)));
    assert_eq!(b_sent[0].1.to_string(), format!("NAK for the gap at {gap}"));
    let nak = arrived(&mut pair, Side::A)[0];
    assert_eq!(nak, (gap, Disposition::NakReceived(SEQUENCE)));
    let decisions = decisions(&mut pair, Side::A);
    assert_eq!(decisions[0], acknowledged(gap));
    let recovery =
        What::Recovery { psn: Psn::new(gap), loss: Loss::Nak, recovery: Recovery::Retransmit };
    assert_eq!(decisions[1], recovery);
    let shrunk = |record: &Record| matches!(record.what, What::Window { from, to, cause: WindowCause::Loss } if to < from);
    assert_eq!(pair.record(Side::A).iter().filter(|&record| shrunk(record)).count(), 1);
}

#[test]
fn a_probe_and_then_the_acknowledge_timer() {
    let (mut pair, a, _) = recorded();
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.fault("drop write once");
    let start = pair.now;
    pair.post_send(&a, &SendWr::write(4, far.remote(0), near.all()));
    pair.run();
    let part = Part { wr_id: 4, index: 0, of: 1 };
    let reasons: Vec<_> = sent(&mut pair, Side::A).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons[0], Reason::First(part));
    // without a sample the 4.2 ms timer precedes the 10 ms probe
    assert_eq!(reasons[1], Reason::Retransmit(part, Loss::Timeout));
    let decided = decisions(&mut pair, Side::A);
    assert_eq!(decided[0], What::Timer(Timer::Acknowledge(Psn::new(A_PSN))));
    let recovery = What::Recovery {
        psn: Psn::new(A_PSN),
        loss: Loss::Timeout,
        recovery: Recovery::Retransmit,
    };
    assert_eq!(decided[1], recovery);
    let fired = pair.record(Side::A).iter().find(|record| matches!(record.what, What::Timer(_)));
    assert_eq!(fired.unwrap().at, start.plus(ack_timeout(10).unwrap()));
    let window = pair.record(Side::A).iter().find_map(|record| match record.what {
        What::Window { cause, .. } => Some(cause),
        _ => None,
    });
    assert_eq!(window, Some(WindowCause::Timeout));
}

#[test]
fn a_probe_repeats_the_last_packet_and_then_the_oldest() {
    let mut pair = Pair::new().recorded();
    pair.allow(DropReason::OutOfSequence);
    let (a, _) = pair.connect(Options { timeout: 20, ..options() });
    let (near, far) = (pair.a.buffer(512), pair.b.buffer(512));
    pair.fault("drop write first nth 1");
    pair.fault("drop nak nth 1");
    pair.post_send(&a, &SendWr::write(4, far.remote(0), near.all()));
    pair.run();
    let reasons: Vec<_> = sent(&mut pair, Side::A).into_iter().map(|(_, reason)| reason).collect();
    let part = |index| Part { wr_id: 4, index, of: 2 };
    assert_eq!(
        reasons,
        [
            Reason::First(part(0)),
            Reason::First(part(1)),
            Reason::Probe { part: part(1), oldest: false },
            Reason::Probe { part: part(0), oldest: true },
            Reason::Retransmit(part(1), Loss::Probe),
        ]
    );
    let timers = decisions(&mut pair, Side::A);
    assert_eq!(timers.iter().filter(|&what| *what == What::Timer(Timer::Probe)).count(), 2);
}

#[test]
fn a_receiver_that_is_not_ready() {
    let (mut pair, a, b) = recorded();
    pair.allow(DropReason::OutOfSequence);
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.post_send(&a, &SendWr::send(1, near.all()));
    pair.run_for(Duration::from_micros(100));
    pair.post_recv(&b, &RecvWr::new(2, [far.all()]));
    pair.run();
    let syndrome = Syndrome::RnrNak { timer: 12 };
    assert_eq!(
        arrived(&mut pair, Side::B)[0].1,
        Disposition::Refused(syndrome, Refusal::NoReceiveRequest)
    );
    let psn = Psn::new(A_PSN);
    assert_eq!(sent(&mut pair, Side::B)[0].1, Reason::Negative(psn, syndrome));
    let wait = Recovery::RetransmitAfter(rnr_timer(12));
    assert_eq!(
        decisions(&mut pair, Side::A)[..2],
        [
            What::Recovery { psn, loss: Loss::NotReady, recovery: wait },
            What::Timer(Timer::NotReady)
        ]
    );
    assert_eq!(sent(&mut pair, Side::A)[1].1, again(1, 0, 1, Loss::NotReady));
}

#[test]
fn a_read_whose_response_is_lost_in_part() {
    let (mut pair, a, _) = recorded();
    pair.allow(DropReason::ReadResponseGap);
    let (near, far) = (pair.a.buffer(1024), pair.b.buffer(1024));
    far.put(0, &pattern(1, 1024));
    pair.fault("drop read-response middle nth 1");
    pair.post_send(&a, &SendWr::read(5, far.remote(0), near.all()));
    pair.run();
    assert_eq!(near.bytes(), far.bytes());
    assert_eq!(
        sent(&mut pair, Side::A),
        [(A_PSN, first(5, 0, 4)), (A_PSN + 1, again(5, 1, 4, Loss::ImpliedNak))]
    );
    assert_eq!(
        arrived(&mut pair, Side::B),
        [(A_PSN, Disposition::Executed), (A_PSN + 1, Disposition::Duplicate)]
    );
    let responses: Vec<_> = sent(&mut pair, Side::B);
    let mut expected: Vec<_> =
        (0..4).map(|n| (A_PSN + n, Reason::Response { again: false })).collect();
    expected.extend((1..4).map(|n| (A_PSN + n, Reason::Response { again: true })));
    assert_eq!(responses, expected);
    let gap = (A_PSN + 2, Disposition::Dropped(DropReason::ReadResponseGap));
    assert_eq!(arrived(&mut pair, Side::A)[1], gap);
}

#[test]
fn an_atomic_that_is_repeated() {
    let (mut pair, a, _) = recorded();
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.fault("drop response nth 1");
    pair.post_send(&a, &SendWr::fetch_add(6, far.remote(0), 1, near.all()));
    pair.run();
    let responses: Vec<_> = sent(&mut pair, Side::B).into_iter().map(|(_, why)| why).collect();
    assert_eq!(responses, [false, true].map(|again| Reason::Response { again }));
    assert_eq!(far.bytes(), 1u64.to_ne_bytes());
}

#[test]
fn a_wrong_key_and_what_follows_on_both_sides() {
    let (mut pair, a, _) = recorded();
    let near = pair.a.buffer(8);
    let remote = Remote { address: 0, rkey: RKey(0xBAD) };
    pair.post_send(&a, &SendWr::write(1, remote, near.all()));
    pair.post_send(&a, &SendWr::write(2, remote, near.all()));
    pair.allow(DropReason::QpState);
    pair.run();
    let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
    let refusal = Refusal::Access(AccessError::UnknownKey(0xBAD));
    assert_eq!(arrived(&mut pair, Side::B)[0], (A_PSN, Disposition::Refused(syndrome, refusal)));
    let failed = |what: &&What| matches!(what, What::State { to: State::Err, .. });
    let of = |decisions: Vec<What>| decisions.iter().find(failed).cloned();
    let (from, to) = (State::Rts, State::Err);
    let b_failure = Failure::Refused(syndrome, refusal);
    assert_eq!(
        of(decisions(&mut pair, Side::B)),
        Some(What::State { from, to, failure: b_failure })
    );
    let on_a = decisions(&mut pair, Side::A);
    let Some(What::State { failure: Failure::Request(error), .. }) = of(on_a.clone()) else {
        panic!("{on_a:?}")
    };
    assert_eq!((error.status, error.cause), (WcStatus::RemAccessErr, Cause::Responder(syndrome)));
    let results: Vec<_> = on_a
        .iter()
        .filter_map(|what| match what {
            What::Completed { wr_id, result } => Some((*wr_id, result.unwrap_err().status)),
            _ => None,
        })
        .collect();
    assert_eq!(results, [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)]);
    let all = pair.record(Side::A).to_vec();
    let kept: Vec<_> = histories(&all).latest(a.qpn).cloned().collect();
    assert!((1..=KEPT).contains(&kept.len()));
    let of_qp: Vec<_> = all.into_iter().filter(|record| record.qpn == a.qpn).collect();
    assert_eq!(kept, of_qp[of_qp.len() - kept.len()..]);
    pair.a.adapter.destroy_qp(a.qpn).unwrap();
    assert_eq!(histories(pair.record(Side::A)).latest(a.qpn).count(), 0);
}

#[test]
fn a_peer_that_is_gone() {
    let mut pair = Pair::new().recorded();
    let (a, _) = pair.connect(Options { timeout: 8, retry_cnt: 2, ..options() });
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.fault("drop 100%");
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    let recoveries: Vec<_> = decisions(&mut pair, Side::A)
        .into_iter()
        .filter_map(|what| match what {
            What::Recovery { loss: Loss::Timeout, recovery, .. } => Some(recovery),
            _ => None,
        })
        .collect();
    assert_eq!(
        recoveries,
        [Recovery::Retransmit, Recovery::Retransmit, Recovery::GiveUp { tries: 3 }]
    );
}

#[test]
fn refused_calls() {
    let mut pair = Pair::new().recorded();
    let qpn = pair.a.qp(Side::A, QpType::Rc, &options()).qpn;
    let near = pair.a.buffer(8);
    let wr = SendWr::send(1, near.all());
    assert!(pair.a.adapter.post_send(pair.now, qpn, &wr).is_err());
    assert!(pair.a.adapter.to_sqd(pair.now, qpn, false).is_err());
    assert!(pair.a.adapter.destroy_qp(Qpn::new(2)).is_err());
    let errors: Vec<_> = pair
        .record(Side::A)
        .iter()
        .filter_map(|record| match record.what {
            What::Call { call, result: Err(error) } => Some((record.qpn, call, error)),
            _ => None,
        })
        .collect();
    let post = Call::PostSend { wr_id: 1, op: wr.op, length: 8, flags: wr.flags };
    let edge =
        ModifyError::IllegalTransition { qp_type: QpType::Rc, from: State::Reset, to: State::Sqd };
    assert_eq!(
        errors,
        [
            (qpn, post, CallError::Post(PostError::State(State::Reset))),
            (qpn, Call::Modify(State::Sqd), CallError::Modify(edge)),
            (Qpn::new(2), Call::DestroyQp, CallError::Object(ObjectError::Unknown)),
        ]
    );
}

#[test]
fn congestion_on_both_sides() {
    let (mut pair, a, _) = recorded();
    let (near, far) = (pair.a.buffer(4000), pair.b.buffer(4000));
    pair.fault("mark 100%");
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    assert!(sent(&mut pair, Side::B).contains(&(0, Reason::Congestion)));
    assert!(arrived(&mut pair, Side::A).contains(&(0, Disposition::Congestion)));
    let record = pair.record(Side::A).to_vec();
    let window = |record: &Record| matches!(record.what, What::Window { from, to, cause: WindowCause::Notification } if to < from);
    let rate = |record: &Record| matches!(record.what, What::Rate { from: None, to: Some(_) });
    assert!(record.iter().any(window), "{record:#?}");
    assert!(record.iter().any(rate), "{record:#?}");
    let marked = |record: &Record| matches!(&record.what, What::Arrived { packet, .. } if packet.net.is_congested());
    assert!(pair.record(Side::B).iter().any(marked));
}

#[test]
fn datagrams_and_copies_of_them() {
    let mut pair = Pair::new().recorded();
    let (a, b) = pair.datagrams(options());
    let near = pair.a.buffer(16);
    let group = "239.1.2.3".parse::<std::net::IpAddr>().unwrap();
    pair.b.adapter.attach_mcast(b.qpn, group.into()).unwrap();
    pair.allow(DropReason::NoReceiveRequest);
    pair.post_send(&a, &SendWr::send_to(1, to_group(group), near.all()));
    pair.run();
    let psn = pair.trace.records[0].psn();
    assert_eq!(sent(&mut pair, Side::A), [(psn, Reason::Datagram { wr_id: 1 })]);
    let records = pair.record(Side::B).to_vec();
    let arrivals: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.what {
            What::Arrived { disposition, .. } => Some((record.qpn, *disposition)),
            _ => None,
        })
        .collect();
    assert_eq!(
        arrivals,
        [
            (Qpn::MULTICAST, Disposition::Replicated { taken: 0, copies: 1 }),
            (b.qpn, Disposition::Dropped(DropReason::NoReceiveRequest)),
        ]
    );
}

#[test]
fn packets_for_nobody_are_recorded_and_not_kept() {
    let (mut pair, a, b) = recorded();
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.b.adapter.destroy_qp(b.qpn).unwrap();
    pair.allow(DropReason::UnknownQp);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    assert_eq!(arrived(&mut pair, Side::B)[0].1, Disposition::Dropped(DropReason::UnknownQp));
    let kept = histories(pair.record(Side::B));
    assert_eq!(kept.latest(b.qpn).count(), 0, "peers name any number");
}

#[test]
fn bytes_that_are_no_packet() {
    let mut pair = Pair::new().recorded();
    let net = net(pair.b.ip, pair.a.ip);
    let datagram = Datagram { net: &net, bytes: &[1, 2, 3], meta: Default::default() };
    pair.a.adapter.handle_datagram(pair.now, &datagram);
    let expected = What::Malformed { net, length: 3, reason: DropReason::TooShort };
    assert_eq!(pair.record(Side::A).last().map(|record| &record.what), Some(&expected));
}

#[test]
fn the_record_changes_nothing() {
    let run = |recorded: bool| {
        let mut pair = if recorded { Pair::new().recorded() } else { Pair::new() };
        pair.allow_all(&[DropReason::OutOfSequence, DropReason::RecoveryUnderWay]);
        let (a, b) = pair.connect(options());
        let (near, far) = (pair.a.buffer(20_000), pair.b.buffer(20_000));
        pair.fault("drop 5%");
        for id in 0..8 {
            pair.post_recv(&b, &RecvWr::new(id, [far.all()]));
            pair.post_send(&a, &SendWr::send(id, near.all()));
        }
        pair.run();
        let rungs = pair.trace.records.iter();
        rungs.map(|rung| (rung.time, rung.net, rung.bytes.clone())).collect::<Vec<_>>()
    };
    assert!(run(true) == run(false));
}

#[test]
fn readers_are_optional() {
    let recorded = Recorded::default();
    let created = [recorded.trace(), Trace::default()].map(|trace| {
        let mut adapter = Adapter::with_trace(Node::config(1), trace);
        let pd = adapter.alloc_pd().unwrap();
        let cq = adapter.create_cq(4).unwrap();
        let qpn = adapter.create_qp(qp_init(QpType::Rc, &cq, pd)).unwrap();
        for _ in 0..3 {
            adapter.to_error(Instant::from_nanos(5), qpn).unwrap_err();
        }
        qpn
    });
    assert_eq!(created[0], created[1]);
    assert_eq!(recorded.take().len(), 4);
}
