use std::{collections::BTreeSet, time::Duration};

use roce_fabric::{Action, Corruption, Kind, Matcher, Rule};
use roce_transport::{
    addr::{Mtu, QKey, Qpn},
    cm::RejectReason,
    event::{DropReason, Event, Refusal},
    explain::{Explain, Finding, Histories, KEPT, SidrStatus},
    ids::CqId,
    mem::{AccessError, LKey, RKey},
    qp::{QpType, State},
    work::{Data, RecvWr, Remote, SendWr, Sge, WcStatus},
};

use crate::common::{End, Options, Pair, QKEY, Side};

fn connected(options: Options) -> (Pair, End, End) {
    let mut pair = Pair::new().recorded();
    let (a, b) = pair.connect(options);
    (pair, a, b)
}

fn findings(pair: &mut Pair, side: Side) -> Vec<Finding> {
    let mut histories = Histories::default();
    pair.record(side).iter().filter_map(|record| histories.observe(record, || None)).collect()
}

#[track_caller]
fn only(pair: &mut Pair, side: Side) -> Finding {
    let [finding] = &findings(pair, side)[..] else {
        panic!("{:#?}", findings(pair, side));
    };
    finding.clone()
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

fn half_connected(pair: &mut Pair, dest: Option<Qpn>, a_psn: u32, b_expects: u32) -> (End, End) {
    let options = Options::default();
    let a = pair.a.qp(Side::A, QpType::Rc, &options);
    let b = pair.b.qp(Side::B, QpType::Rc, &options);
    let (a_ip, b_ip) = (pair.a.ip, pair.b.ip);
    pair.a.connect(a.qpn, b_ip, dest.unwrap_or(b.qpn), 0x200, a_psn, &options);
    pair.b.connect(b.qpn, a_ip, a.qpn, b_expects, 0x200, &options);
    (a, b)
}

#[test]
fn what_goes_well_is_not_explained() {
    let (mut pair, a, b) = connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, far) = (pair.a.buffer(5000), pair.b.buffer(5000));
    pair.fault("drop nth 3");
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send(2, near.all()));
    pair.post_send(&a, &SendWr::read(3, far.remote(0), near.all()));
    pair.allow_all(&[DropReason::OutOfSequence, DropReason::RecoveryUnderWay]);
    pair.allow_all(&[DropReason::ReadResponseGap, DropReason::StaleResponse]);
    pair.run();
    // a connection's end, and late arrivals
    pair.post_recv(&b, &RecvWr::new(4, [far.all()]));
    pair.a.adapter.to_error(pair.now, a.qpn).unwrap();
    pair.b.adapter.to_error(pair.now, b.qpn).unwrap();
    pair.run();
    assert_eq!([findings(&mut pair, Side::A), findings(&mut pair, Side::B)], [[], []]);
}

#[test]
fn a_peer_that_is_not_there() {
    let mut pair = Pair::new().recorded();
    pair.allow(DropReason::UnknownQp);
    let stranger = Qpn::new(0x9999);
    let (a, _) = half_connected(&mut pair, Some(stranger), 0x100, 0x100);
    pair.post_send(&a, &SendWr::send(7, Data::inline(b"abcd")));
    pair.run();
    let near = only(&mut pair, Side::A);
    assert_eq!(near.qpn, Some(a.qpn));
    assert_eq!((near.status, near.reason.cause), (Some(WcStatus::RetryExcErr), "no_response"));
    assert_eq!(near.silent, Some(pair.b.ip));
    assert_says(&near.what, &["ibv_post_send 7: SEND of 4 B"]);
    assert_says(&near.reason.rule, &["given up after 8 tries"]);
    assert_says(&near.reason.advice, &["dest_qp_num", "4791"]);
    let peer = near.peer.as_deref().unwrap();
    assert_says(peer, &["ACK timeouts 109.1ms, 100.7ms", "16.8ms, 0.0ns ago", "no packet arrived"]);
    assert_says(peer, &["10.0.0.2, queue pair 0x009999"]);
    assert_eq!(near.latest.len(), KEPT);
    // the other side names the queue pair requested
    let far = only(&mut pair, Side::B);
    assert_eq!((far.qpn, far.reason.cause), (Some(stranger), "unknown_qp"));
    assert_says(&far.reason.advice, &["dest_qp_num"]);
}

#[test]
fn responses_that_are_dropped() {
    let flip = |offset, mask| Action::Corrupt(Some(Corruption { offset, mask }));
    for (action, reason, peer, look) in [
        (flip(1, 0x30), DropReason::Padding, "packets from its address", "adapter"),
        (flip(1, 0x01), DropReason::TransportVersion, "packets from its address", "adapter"),
        (flip(0, 0x0E), DropReason::UnknownOpcode, "packets from its address", "adapter"),
        (
            flip(7, 0x01),
            DropReason::UnknownQp,
            "packets from its address",
            "the peer's dest_qp_num",
        ),
        (flip(14, 0x01), DropReason::Icrc, "responds, but", "damaged in transit"),
        (flip(0, 0xA0), DropReason::WrongService, "responds, but", "same qp_type"),
    ] {
        let (mut pair, a, b) = connected(Options::default());
        pair.allow(reason);
        let matcher = Matcher { kind: Some(Kind::Response), ..Matcher::default() };
        pair.rule(Rule::new(matcher, action));
        pair.post_recv(&b, &RecvWr::new(1, []));
        pair.post_send(&a, &SendWr::send(7, Data::empty()));
        pair.run();
        let dropped = pair.a.adapter.counters().dropped(reason);
        let found = findings(&mut pair, Side::A);
        let finding = found.iter().find(|it| it.status == Some(WcStatus::RetryExcErr)).unwrap();
        assert_says(&finding.reason.rule, &["given up after 8 tries", "were dropped"]);
        assert_says(&finding.reason.advice, &[look]);
        let count = format!("{dropped} × {reason}");
        assert_says(finding.peer.as_deref().unwrap(), &["10.0.0.2", peer, &count]);
        assert!(dropped > 7 && !finding.reason.advice.contains("firewall"), "{finding:?}");
    }
}

/// The peer is known and sends valid requests.
#[test]
fn responses_that_are_dropped_later() {
    let (mut pair, a, b) = connected(Options::default());
    pair.allow(DropReason::Padding);
    for id in 0..3 {
        pair.post_recv(&a, &RecvWr::new(id, []));
        pair.post_recv(&b, &RecvWr::new(id, []));
    }
    pair.post_send(&b, &SendWr::send(1, Data::empty()));
    pair.run();
    let flip = Action::Corrupt(Some(Corruption { offset: 1, mask: 0x30 }));
    let matcher = Matcher { kind: Some(Kind::Response), ..Matcher::default() };
    pair.rule(Rule::new(matcher, flip));
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    pair.run();
    let found = findings(&mut pair, Side::A);
    let finding = found.iter().find(|it| it.status == Some(WcStatus::RetryExcErr)).unwrap();
    assert_says(
        finding.peer.as_deref().unwrap(),
        &["dropped packets from its address since", "× a length"],
    );
    assert_says(&finding.reason.advice, &["the peer's adapter"]);
}

#[test]
fn a_retry_count_of_zero() {
    for was_heard in [false, true] {
        let (mut pair, a, b) = connected(Options { retry_cnt: 0, ..Options::default() });
        pair.post_recvs(&b, 0..2, &[]);
        if was_heard {
            pair.post_send(&a, &SendWr::send(1, Data::empty()));
            pair.run();
        }
        pair.fault("drop send");
        pair.post_send(&a, &SendWr::send(2, Data::empty()));
        pair.run();
        let finding = only(&mut pair, Side::A);
        assert_says(&finding.reason.rule, &["given up after 1 try: retry_cnt is 0"]);
        assert_says(&finding.reason.advice, &["retry_cnt (retry_count of rdma_connect) is 0"]);
    }
    let (mut pair, a, _) = connected(Options { rnr_retry: 0, ..Options::default() });
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    pair.run();
    assert_says(&only(&mut pair, Side::A).reason.rule, &["given up after 1 try: rnr_retry is 0"]);
}

#[test]
fn a_peer_that_has_gone() {
    let (mut pair, a, b) = connected(Options::default());
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run();
    pair.b.adapter.to_reset(b.qpn).unwrap();
    pair.allow(DropReason::QpState);
    pair.post_send(&a, &SendWr::send(2, Data::empty()));
    pair.run();
    let finding = only(&mut pair, Side::A);
    assert_says(&finding.what, &["ibv_post_send 2"]);
    assert_says(finding.peer.as_deref().unwrap(), &["the last packet from 10.0.0.2", " arrived "]);
    assert_says(&finding.reason.advice, &["the peer responded earlier"]);
}

#[test]
fn psns_that_were_not_exchanged() {
    for b_expects in [0x5000, 0x0080] {
        let mut pair = Pair::new().recorded();
        pair.allow_all(&[DropReason::OutOfSequence, DropReason::ResponseOutsideWindow]);
        pair.allow_all(&[DropReason::StaleResponse, DropReason::ReplayMissing]);
        let (a, b) = half_connected(&mut pair, None, 0x1000, b_expects);
        pair.post_recv(&b, &RecvWr::new(1, []));
        pair.post_send(&a, &SendWr::send(7, Data::empty()));
        pair.run();
        let finding = only(&mut pair, Side::A);
        assert_eq!(finding.reason.cause, "wrong_psn", "{b_expects:#x}: {finding:#?}");
        assert_says(&finding.reason.advice, &["rq_psn", "sq_psn"]);
        assert_says(finding.peer.as_deref().unwrap(), &["responds, but"]);
    }
}

#[test]
fn a_receiver_that_is_not_ready() {
    let (mut pair, a, _) = connected(Options { rnr_retry: 2, ..Options::default() });
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    pair.run();
    let finding = only(&mut pair, Side::A);
    let status = Some(WcStatus::RnrRetryExcErr);
    assert_eq!((finding.status, finding.reason.cause), (status, "receiver_not_ready"));
    assert_says(&finding.reason.rule, &["given up after 3 tries"]);
    assert_says(finding.peer.as_deref().unwrap(), &["RNR NAKs sent: 3, last wait 640.0µs"]);
    assert_says(&finding.reason.advice, &["post enough receives", "rnr_retry"]);
}

#[test]
fn receives_that_reset_discards() {
    let options = Options { rnr_retry: 7, ..Options::default() };
    let (mut pair, a, b) = connected(options);
    pair.post_recv(&b, &RecvWr::new(1, []));
    let a_ip = pair.a.ip;
    pair.b.adapter.to_reset(b.qpn).unwrap();
    pair.b.connect(b.qpn, a_ip, a.qpn, options.a_psn, options.b_psn, &options);
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    pair.run_for(Duration::from_millis(900));
    assert_eq!([Side::A, Side::B].map(|side| findings(&mut pair, side).len()), [0, 0]);
    pair.run_for(Duration::from_secs(5));
    let (near, far) = (only(&mut pair, Side::A), only(&mut pair, Side::B));
    assert_eq!((near.status, near.reason.cause), (None, "receiver_not_ready"));
    assert_says(&near.what, &["ibv_post_send 7"]);
    assert_says(&near.reason.rule, &["no receive request for 1.0s: ", " RNR NAKs"]);
    assert_eq!(far.reason.cause, "no_receive_request");
    assert_says(&far.reason.rule, &["for 1.0s", "RESET has discarded 1 receive requests"]);
}

#[test]
fn a_key_that_the_peer_does_not_know() {
    let (mut pair, a, _) = connected(Options::default());
    let near = pair.a.buffer(8);
    let remote = Remote { address: 0x1000, rkey: RKey(0xBAD) };
    pair.post_send(&a, &SendWr::write(7, remote, near.all()));
    pair.run();
    let finding = only(&mut pair, Side::A);
    assert_eq!(
        (finding.status, finding.reason.cause),
        (Some(WcStatus::RemAccessErr), "remote_access")
    );
    assert_says(&finding.what, &["RDMA WRITE of 8 B"]);
    assert_says(finding.peer.as_deref().unwrap(), &["sent NAK remote access error"]);
    // only the peer knows the key and reason
    let far = only(&mut pair, Side::B);
    assert_eq!(far.reason.cause, "unknown_key");
    assert_says(&far.reason.rule, &["0x00000bad"]);
    assert_says(far.peer.as_deref().unwrap(), &["sent RC RDMA WRITE Only", "rkey 0x00000bad"]);
}

#[test]
fn a_path_mtu_that_differs() {
    for (near, far) in [(Mtu::B256, Mtu::B1024), (Mtu::B1024, Mtu::B256)] {
        for (is_read, status) in [(false, WcStatus::RemInvReqErr), (true, WcStatus::BadRespErr)] {
            let mut pair = Pair::new().recorded();
            pair.allow(DropReason::QpState); // packets behind the first
            let [near, far] = [near, far].map(|mtu| Options { mtu, ..Options::default() });
            let (a, _) = pair.connect_with(near, far);
            let (local, remote) = (pair.a.buffer(2000), pair.b.buffer(2000));
            let wr = match is_read {
                true => SendWr::read(7, remote.remote(0), local.all()),
                false => SendWr::write(7, remote.remote(0), local.all()),
            };
            pair.post_send(&a, &wr);
            pair.run();
            let finding = only(&mut pair, Side::A);
            assert_eq!(finding.status, Some(status), "{finding:#?}");
            assert_says(&finding.reason.advice, &["path_mtu"]);
        }
    }
}

#[test]
fn a_key_of_its_own_that_is_wrong() {
    let (mut pair, a, _) = connected(Options::default());
    let sge = Sge { lkey: LKey(0xBAD), address: 0, length: 8 };
    pair.post_send(&a, &SendWr::send(7, Data::from(sge)));
    pair.run();
    let finding = only(&mut pair, Side::A);
    assert_eq!((finding.status, finding.reason.cause), (Some(WcStatus::LocProtErr), "unknown_key"));
    assert_says(&finding.reason.rule, &["0x00000bad"]);
    assert_says(&finding.reason.advice, &["lkey"]);
}

#[test]
fn a_receive_buffer_that_is_too_short() {
    let (mut pair, a, b) = connected(Options::default());
    let (near, far) = (pair.a.buffer(100), pair.b.buffer(10));
    pair.post_recv(&b, &RecvWr::new(9, [far.all()]));
    pair.post_send(&a, &SendWr::send(7, near.all()));
    pair.run();
    let near = only(&mut pair, Side::A);
    assert_eq!(near.status, Some(WcStatus::RemInvReqErr));
    assert_says(&near.reason.advice, &["longer than its receive buffer"]);
    let far = only(&mut pair, Side::B);
    assert_eq!((far.status, far.reason.cause), (Some(WcStatus::LocLenErr), "buffer_too_small"));
    assert_says(&far.what, &["receive request 9"]);
    assert_says(far.peer.as_deref().unwrap(), &["[100 B]"]);
}

#[test]
fn a_queue_that_overflows() {
    let (mut pair, a, b) = connected(Options { cqe: 2, ..Options::default() });
    for id in 0..4 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.allow(DropReason::QpState);
    pair.run();
    let found = findings(&mut pair, Side::B);
    assert_eq!(found[0].reason.cause, "cq_overrun");
    assert_says(&found[0].reason.advice, &["cqe for every request"]);
}

#[test]
fn datagrams_that_nobody_else_hears_of() {
    let mut pair = Pair::new().recorded();
    pair.allow_all(&[DropReason::QKey, DropReason::NoReceiveRequest, DropReason::TooLong]);
    let (a, b) = pair.datagrams(Options::default());
    let to = pair.b.destination(b.qpn);
    let wrong = roce_transport::work::UdDestination { qkey: QKey(0x0BAD), ..to };
    for _ in 0..2 {
        pair.post_send(&a, &SendWr::send_to(1, wrong, Data::inline(b"abcd")));
        pair.post_send(&a, &SendWr::send_to(1, to, Data::inline(b"abcd")));
    }
    pair.run();
    let far = pair.b.buffer(41);
    pair.post_recv(&b, &RecvWr::new(9, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to, Data::inline(b"abcd")));
    pair.run();
    let found = findings(&mut pair, Side::B);
    let causes: Vec<_> = found.iter().map(|finding| finding.reason.cause).collect();
    assert_eq!(causes, ["bad_qkey", "no_receive_request", "too_long"], "each once");
    assert_says(&found[0].reason.rule, &["0x00000bad"]);
    assert_says(&found[0].reason.advice, &["remote_qkey"]);
    assert_says(&found[2].reason.advice, &["40 bytes"]);
    assert_ne!(QKEY, QKey(0x0BAD));
}

#[test]
fn calls_that_are_refused() {
    let (mut pair, a, _) = connected(Options::default());
    assert!(pair.a.adapter.to_init(a.qpn, &Default::default()).is_err());
    let options = Options::default();
    let fresh = pair.a.qp(Side::A, QpType::Rc, &options);
    assert!(pair.try_post_send(&fresh, &SendWr::send(7, Data::empty())).is_err());
    let inline = vec![0; 4096];
    assert!(pair.try_post_send(&a, &SendWr::send(8, Data::inline(&inline))).is_err());
    let found = findings(&mut pair, Side::A);
    let causes: Vec<_> = found
        .iter()
        .map(|finding| (finding.what.as_str(), finding.reason.cause, finding.reason.errno.unwrap()))
        .collect();
    assert_eq!(
        causes,
        [
            ("ibv_modify_qp to INIT, from RTS", "illegal_transition", "EINVAL"),
            ("ibv_post_send 7: SEND of 0 B, SIGNALED", "post_state", "EINVAL"),
            ("ibv_post_send 8: SEND of 4096 B, SIGNALED", "inline_too_long", "EINVAL"),
        ]
    );
    assert_says(&found[0].reason.advice, &["move it to RESET before"]);
    assert_says(
        &found[1].reason.advice,
        &["to INIT before you post receives", "to RTS before sends"],
    );
}

#[test]
fn what_is_posted_after_a_failure_names_its_cause() {
    let (mut pair, a, _) = connected(Options { rnr_retry: 0, ..Options::default() });
    for id in 1..4 {
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.allow(DropReason::OutOfSequence);
    pair.run();
    for id in 4..7 {
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    let found = findings(&mut pair, Side::A);
    let statuses: Vec<_> = found.iter().map(|finding| finding.status.unwrap()).collect();
    assert_eq!(statuses, [WcStatus::RnrRetryExcErr, WcStatus::WrFlushErr], "no flush by itself");
    assert_says(&found[1].what, &["ibv_post_send 4"]);
    assert_says(&found[1].reason.rule, &["has been in ERR", "RNR retry counter exceeded"]);
    assert_says(&found[1].reason.advice, &["the request is not the cause"]);
    assert_eq!(pair.state(&a), State::Err);
}

#[test]
fn both_sides_without_receives() {
    let (mut pair, a, b) = connected(Options { rnr_retry: 7, ..Options::default() });
    [&a, &b].into_iter().for_each(|end| pair.post_send(end, &SendWr::send(7, Data::empty())));
    pair.run_for(Duration::from_secs(3));
    for side in [Side::A, Side::B] {
        let found = findings(&mut pair, side);
        let causes: BTreeSet<_> = found.iter().map(|finding| finding.reason.cause).collect();
        assert_eq!(causes, BTreeSet::from(["no_receive_request", "receiver_not_ready"]));
        assert_eq!(found.len(), 2, "{found:#?}");
    }
}

#[test]
fn a_post_while_the_program_drains_its_queues() {
    let (mut pair, a, _) = connected(Options::default());
    let now = pair.now;
    pair.a.adapter.to_error(now, a.qpn).unwrap();
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    let finding = only(&mut pair, Side::A);
    assert_eq!(finding.status, Some(WcStatus::WrFlushErr));
    assert_says(&finding.reason.rule, &["since ibv_modify_qp to ERR"]);
    assert_says(&finding.reason.advice, &["expected while the program drains its queues"]);
}

/// Late packets are no error.
#[test]
fn a_queue_pair_that_is_gone() {
    let mut pair = Pair::new().recorded();
    pair.allow(DropReason::UnknownQp);
    let (a, b) = pair.connect(Options::default());
    pair.b.adapter.destroy_qp(b.qpn).unwrap();
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    pair.run();
    assert_eq!(findings(&mut pair, Side::B), []);
    let mut histories = Histories::default();
    pair.record(Side::B).iter().for_each(|record| drop(histories.observe(record, || None)));
    assert_eq!(histories.latest(b.qpn).count(), 0);
}

/// Call errors are matched in the code.
#[test]
fn nothing_is_without_an_explanation() {
    let statuses = WcStatus::ALL.iter().map(Explain::explain);
    let drops = DropReason::ALL.iter().map(Explain::explain);
    let rejections = (0..40).map(|reason| RejectReason(reason).explain());
    let services = (0..8).map(|status| SidrStatus(status).explain());
    let qpn = Qpn::new(1);
    let events = [
        Event::Completion(CqId(1)),
        Event::CommunicationEstablished(qpn),
        Event::SendQueueDrained(qpn),
        Event::QpFatal(qpn),
        Event::QpRequestError(qpn, Refusal::Length),
        Event::QpAccessError(qpn, Refusal::Access(AccessError::UnknownKey(1))),
        Event::LastWqeReached(qpn),
        Event::PKeyChange,
        Event::CqError(CqId(1)),
        Event::PortActive,
        Event::PortError,
        Event::GidChange,
        Event::DeviceFatal,
    ];
    let reasons: Vec<_> = statuses
        .chain(drops)
        .chain(rejections)
        .chain(services)
        .chain(events.iter().map(Explain::explain))
        .collect();
    for reason in &reasons {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(!reason.cause.is_empty() && reason.cause.chars().all(is_name), "{reason:?}");
        assert!(!reason.rule.is_empty() && !reason.advice.is_empty(), "{reason:?}");
        assert!(!reason.advice.contains('\n') && !reason.rule.contains('\n'), "{reason:?}");
    }
    let of_statuses: BTreeSet<_> =
        WcStatus::ALL.iter().map(|status| status.explain().cause).collect();
    assert_eq!(of_statuses.len(), WcStatus::ALL.len());
    let names: BTreeSet<_> = WcStatus::ALL.iter().map(|status| status.name()).collect();
    assert_eq!(names.len(), WcStatus::ALL.len());
    let numbers: Vec<_> = WcStatus::ALL.iter().map(|&status| status as u8).collect();
    assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
}
