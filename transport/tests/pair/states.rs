//! Queue pair states (10.3.1).

use roce_transport::{
    adapter::{Limits, PKeyTable},
    addr::{AddressVector, Mtu, PKey, Qpn},
    event::{Disposition, DropReason, Event},
    mem::LKey,
    psn::Psn,
    qp::{
        Attribute, EDGES, Init, ModifyError, PeerAttr, PostError, QpType, QpUpdate, RequesterAttr,
        ResponderAttr, Rtr, Rts, State,
    },
    time::Instant,
    wire::{NakCode, Operation as Op},
    work::{Data, RecvWr, SendFlags, SendWr, Sge, SrqId, WcStatus},
};

use crate::common::{End, Half, NULL_REMOTE, Node, Options, Pair, Side, ack, all_ok, nak, pkt};

const DROPPED: Disposition = Disposition::Dropped(DropReason::QpState);

pub(super) fn node() -> Node {
    prepared(Node::new([10, 0, 0, 1].into(), 1, crate::common::UDP_SEGMENT))
}

fn prepared(mut node: Node) -> Node {
    node.adapter.set_pkeys(PKeyTable::new([PKey::DEFAULT, PKey(0x8001)]).unwrap()).unwrap();
    node.adapter.carry_frames(Some(1500));
    node
}

/// Tries an edge with valid attributes.
pub(super) fn go(node: &mut Node, qp: &End, qp_type: QpType, to: State) -> Result<(), ModifyError> {
    go_with(node, qp, qp_type, to, &QpUpdate::default())
}

pub(super) fn go_with(
    node: &mut Node,
    qp: &End,
    qp_type: QpType,
    to: State,
    changes: &QpUpdate,
) -> Result<(), ModifyError> {
    let adapter = &mut node.adapter;
    let from = adapter.query_qp(qp.qpn).unwrap().state;
    match to {
        State::Init | State::Rts | State::Sqd if from == to => {
            adapter.update(Instant::ZERO, qp.qpn, changes)
        }
        State::Reset => adapter.to_reset(qp.qpn),
        State::Init => adapter.to_init(qp.qpn, &Init::default()),
        State::Rtr => {
            let av = AddressVector::new(std::net::IpAddr::from([10, 0, 0, 2]).into(), 0);
            let peer =
                PeerAttr { dest_qpn: Qpn::new(7), path_mtu: Mtu::B1024, rq_psn: Psn::new(0), av };
            let responder = ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 0 };
            let rtr = Rtr::new(qp_type, peer, responder);
            adapter.to_rtr_with(qp.qpn, &rtr, changes)
        }
        State::Rts => {
            let requester =
                RequesterAttr { timeout: 10, retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 1 };
            let rts = match from {
                State::Rtr => Rts::new(qp_type, Psn::new(0), requester),
                _ => Rts::Resume,
            };
            adapter.to_rts_with(Instant::ZERO, qp.qpn, &rts, changes)
        }
        State::Sqd => adapter.to_sqd(Instant::ZERO, qp.qpn, false),
        State::Err => adapter.to_error(Instant::ZERO, qp.qpn),
        State::Sqe => panic!("no command leads to SQE"),
    }
}

/// `None` without SQE.
pub(super) fn in_state(node: &mut Node, qp_type: QpType, state: State) -> Option<End> {
    let qp = node.qp(Side::A, qp_type, &Options::default());
    let way: &[State] = match state {
        State::Reset => &[],
        State::Init => &[State::Init],
        State::Rtr => &[State::Init, State::Rtr],
        State::Rts | State::Sqe => &[State::Init, State::Rtr, State::Rts],
        State::Sqd => &[State::Init, State::Rtr, State::Rts, State::Sqd],
        State::Err => &[State::Init, State::Err],
    };
    for &step in way {
        go(node, &qp, qp_type, step).unwrap();
    }
    if state == State::Sqe {
        if qp_type.is_reliable() {
            return None;
        }
        fail_a_send(node, &qp, qp_type);
    }
    assert_eq!(node.state(qp.qpn), state);
    Some(qp)
}

pub(super) const TYPES: [QpType; 6] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::XrcInitiator,
    QpType::XrcTarget,
    QpType::RawPacket,
];

fn empty_send(node: &Node, qp: &End, qp_type: QpType) -> SendWr {
    match qp_type {
        QpType::Ud => SendWr::send_to(1, node.destination(qp.qpn), Data::empty()),
        QpType::XrcInitiator => SendWr::send(1, Data::empty()).to_srq(SrqId::new(1)),
        QpType::RawPacket => SendWr::send(1, Data::inline(&[0; 14])),
        _ => SendWr::send(1, Data::empty()),
    }
}

/// An unreliable queue pair enters SQE.
fn fail_a_send(node: &mut Node, qp: &End, qp_type: QpType) {
    let bad = Sge { lkey: LKey(0xBAD), address: 0, length: 1 };
    let wr = SendWr { data: bad.into(), ..empty_send(node, qp, qp_type) };
    node.adapter.post_send(Instant::ZERO, qp.qpn, &wr).unwrap();
    all_sent(node);
}

/// Datagrams and frames sent.
fn all_sent(node: &mut Node) -> (u64, u64) {
    let before = node.adapter.counters().sent_packets;
    node.transmit.clear();
    node.adapter.poll_transmit(Instant::ZERO, &mut node.transmit);
    let mut frames = 0;
    while node.adapter.has_frames() {
        frames += u64::from(node.adapter.poll_frame(Instant::ZERO, &mut Vec::new()).is_some());
    }
    (node.adapter.counters().sent_packets - before, frames)
}

#[test]
fn exactly_the_edges_of_the_table_exist() {
    for qp_type in TYPES {
        for from in State::ALL {
            for to in State::ALL.into_iter().filter(|&to| to != State::Sqe) {
                let mut node = node();
                let Some(qp) = in_state(&mut node, qp_type, from) else { continue };
                let legal = to == State::Reset
                    || (to == State::Err && from != State::Reset)
                    || EDGES.contains(&(from, to));
                let result = go(&mut node, &qp, qp_type, to);
                if legal {
                    assert_eq!(result, Ok(()), "{qp_type} {from} to {to}");
                    assert_eq!(node.state(qp.qpn), to);
                } else {
                    assert_eq!(result, Err(ModifyError::IllegalTransition { qp_type, from, to }));
                    assert_eq!(node.state(qp.qpn), from);
                }
            }
        }
    }
}

#[test]
fn attributes_are_checked_before_anything_changes() {
    let mut node = node();
    node.adapter.set_port(true, Mtu::B1024);
    let rc = in_state(&mut node, QpType::Rc, State::Init).unwrap();
    let av = AddressVector::new(std::net::IpAddr::from([10, 0, 0, 2]).into(), 0);
    let good = (av, Mtu::B1024, 1, 1);
    let other_family = AddressVector::new(std::net::IpAddr::from([0xFD; 16]).into(), 0);
    let group = AddressVector::new(std::net::IpAddr::from([239, 0, 0, 2]).into(), 0);
    for ((av, path_mtu, max_dest_rd_atomic, min_rnr_timer), error) in [
        ((group, Mtu::B1024, 1, 1), ModifyError::MulticastPeer(group.dgid)),
        ((AddressVector { sgid_index: 1, ..av }, Mtu::B1024, 1, 1), ModifyError::GidIndex(1)),
        ((other_family, Mtu::B1024, 1, 1), ModifyError::GidIndex(0)),
        ((av, Mtu::B2048, 1, 1), ModifyError::PathMtu { asked: Mtu::B2048, port: Mtu::B1024 }),
        (
            (av, Mtu::B1024, 129, 1),
            ModifyError::Range { attribute: Attribute::MaxDestRdAtomic, limit: 128 },
        ),
        (
            (av, Mtu::B1024, 1, 32),
            ModifyError::Range { attribute: Attribute::MinRnrTimer, limit: 31 },
        ),
        (good, ModifyError::WrongService(QpType::Ud)),
    ] {
        let rtr = Rtr::Rc(
            PeerAttr { dest_qpn: Qpn::new(7), path_mtu, rq_psn: Psn::new(0), av },
            ResponderAttr { max_dest_rd_atomic, min_rnr_timer },
        );
        if error == ModifyError::WrongService(QpType::Ud) {
            let ud = in_state(&mut node, QpType::Ud, State::Init).unwrap();
            assert_eq!(node.adapter.to_rtr(ud.qpn, &rtr), Err(error));
            assert_eq!(
                node.adapter.to_rtr(rc.qpn, &Rtr::Ud),
                Err(ModifyError::WrongService(QpType::Rc))
            );
        } else {
            assert_eq!(node.adapter.to_rtr(rc.qpn, &rtr), Err(error));
        }
        assert_eq!(node.state(rc.qpn), State::Init);
    }
    let rtr = in_state(&mut node, QpType::Rc, State::Rtr).unwrap();
    for (timeout, retry_cnt, rnr_retry, max_rd_atomic, attribute, limit) in [
        (32, 0, 0, 0, Attribute::Timeout, 31),
        (0, 8, 0, 0, Attribute::RetryCnt, 7),
        (0, 0, 8, 0, Attribute::RnrRetry, 7),
        (0, 0, 0, 129, Attribute::MaxRdAtomic, 128),
    ] {
        let rts =
            Rts::Rc(Psn::new(0), RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic });
        let result = node.adapter.to_rts(Instant::ZERO, rtr.qpn, &rts);
        assert_eq!(result, Err(ModifyError::Range { attribute, limit }));
    }
    let reset = in_state(&mut node, QpType::Rc, State::Reset).unwrap();
    let init = Init { pkey_index: 2, ..Init::default() };
    assert_eq!(node.adapter.to_init(reset.qpn, &init), Err(ModifyError::PKeyIndex(2)));
    assert_eq!(node.adapter.to_reset(Qpn::new(0x123456)), Err(ModifyError::UnknownQp));
}

#[test]
fn what_can_be_posted_in_each_state() {
    for qp_type in TYPES {
        for state in State::ALL {
            let mut node = node();
            let Some(qp) = in_state(&mut node, qp_type, state) else { continue };
            qp.sent();
            let wr = empty_send(&node, &qp, qp_type);
            let sent = node.adapter.post_send(Instant::ZERO, qp.qpn, &wr);
            let received = node.adapter.post_recv(Instant::ZERO, qp.qpn, &RecvWr::new(2, []));
            let no_queue = Err(PostError::NoSuchQueue(qp_type));
            if qp_type == QpType::XrcTarget {
                assert_eq!((sent, received), (no_queue, no_queue), "{state}");
                continue;
            }
            match state {
                State::Reset | State::Init | State::Rtr => {
                    assert_eq!(sent, Err(PostError::State(state)));
                }
                _ => assert_eq!(sent, Ok(())),
            }
            match (qp_type, state) {
                (QpType::XrcInitiator, _) => assert_eq!(received, no_queue, "{state}"),
                (_, State::Reset) => assert_eq!(received, Err(PostError::State(state))),
                _ => assert_eq!(received, Ok(())),
            }
            let flushed = |id| vec![(id, Err(WcStatus::WrFlushErr))];
            let send_flushed = matches!(state, State::Err | State::Sqe);
            assert_eq!(
                qp.send_outcomes(),
                if send_flushed { flushed(1) } else { vec![] },
                "{qp_type} {state}"
            );
            let recv_flushed = state == State::Err && qp_type != QpType::XrcInitiator;
            assert_eq!(
                qp.recv_outcomes(),
                if recv_flushed { flushed(2) } else { vec![] },
                "{qp_type} {state}"
            );
            // SQD accepts requests, executing none
            let is_quiet = all_sent(&mut node) == (0, 0);
            assert_eq!(is_quiet, state != State::Rts, "{qp_type} {state}");
        }
    }
}

#[test]
fn what_is_posted_early_leaves_with_the_next_request_in_rts() {
    let before = [State::Reset, State::Init, State::Rtr];
    for (qp_type, state) in TYPES.into_iter().flat_map(|of| before.map(|state| (of, state))) {
        let granted = Limits { early_posts: true, ..Limits::default() };
        let (ip, segment) = ([10, 0, 0, 1].into(), crate::common::UDP_SEGMENT);
        let mut node = prepared(Node::granting(granted, ip, 1, segment));
        let qp = in_state(&mut node, qp_type, state).unwrap();
        let wr = empty_send(&node, &qp, qp_type);
        let post = |node: &mut Node, wr_id| {
            node.adapter.post_send(Instant::ZERO, qp.qpn, &SendWr { wr_id, ..wr.clone() })
        };
        if qp_type == QpType::XrcTarget {
            assert_eq!(post(&mut node, 1), Err(PostError::NoSuchQueue(qp_type)));
            continue;
        }
        post(&mut node, 1).unwrap();
        if qp_type != QpType::XrcInitiator {
            node.adapter.post_recv(Instant::ZERO, qp.qpn, &RecvWr::new(3, [])).unwrap();
        }
        let way = [State::Reset, State::Init, State::Rtr, State::Rts];
        for &to in way.iter().skip_while(|&&step| step != state).skip(1) {
            go(&mut node, &qp, qp_type, to).unwrap();
        }
        let sent = |node: &mut Node| {
            let (datagrams, frames) = all_sent(node);
            datagrams + frames
        };
        assert_eq!(sent(&mut node), 0, "{qp_type} {state}");
        post(&mut node, 2).unwrap();
        assert_eq!(sent(&mut node), 2, "{qp_type} {state}");
        let other = in_state(&mut node, qp_type, state).unwrap();
        node.adapter.post_send(Instant::ZERO, other.qpn, &wr).unwrap();
        if state == State::Rtr {
            go(&mut node, &other, qp_type, State::Rts).unwrap();
        }
        if state != State::Reset {
            go(&mut node, &other, qp_type, State::Err).unwrap();
            assert_eq!(
                other.send_outcomes(),
                [(1, Err(WcStatus::WrFlushErr))],
                "{qp_type} {state}"
            );
        }
    }
}

#[test]
fn what_is_received_in_each_state() {
    for state in State::ALL {
        let options = Options::default();
        let mut half = Half::reset(options);
        let node = &mut half.node;
        let qpn = half.qp.qpn;
        if state != State::Reset {
            node.enter_init(qpn, &options);
        }
        if matches!(state, State::Rtr | State::Rts | State::Sqd | State::Err) {
            node.enter_rtr(qpn, Half::PEER_IP, Half::PEER, Half::THEIRS, &options);
        }
        if matches!(state, State::Rts | State::Sqd | State::Err) {
            node.enter_rts(qpn, Half::OURS, &options);
        }
        match state {
            State::Sqd => node.adapter.to_sqd(Instant::ZERO, qpn, false).unwrap(),
            State::Err => node.adapter.to_error(Instant::ZERO, qpn).unwrap(),
            State::Sqe => continue,
            _ => {}
        }
        let request = half.send(&pkt(Op::WriteOnly, 0x200).reth(NULL_REMOTE, 0).ask());
        let response = half.send(&ack(0x100, 1));
        match state {
            State::Reset | State::Init | State::Err => {
                assert_eq!((request, response), (DROPPED, DROPPED), "{state}");
                half.expect_nothing();
            }
            State::Rtr => {
                assert_eq!((request, response), (Disposition::Executed, DROPPED));
                half.expect(&[ack(0x200, 1)]);
                assert_eq!(half.node.events, [Event::CommunicationEstablished(qpn)]);
            }
            _ => {
                let outside = Disposition::Dropped(DropReason::ResponseOutsideWindow);
                assert_eq!((request, response), (Disposition::Executed, outside), "{state}");
                half.expect(&[ack(0x200, 1)]);
                assert_eq!(half.node.events, []);
            }
        }
    }
}

#[test]
fn the_first_packet_in_rtr_is_reported_once() {
    let options = Options::default();
    let mut half = Half::reset(options);
    let qpn = half.qp.qpn;
    half.node.enter_init(qpn, &options);
    half.node.enter_rtr(qpn, Half::PEER_IP, Half::PEER, Half::THEIRS, &options);
    for psn in 0x200..0x203 {
        half.send(&pkt(Op::WriteOnly, psn).reth(NULL_REMOTE, 0));
    }
    assert_eq!(half.node.events, [Event::CommunicationEstablished(qpn)]);
}

#[test]
fn draining() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(556 * 256);
    let qpn = half.qp.qpn;
    half.post_send(&SendWr::send(1, from.all()));
    assert_eq!(half.take().len(), 512);
    half.node.adapter.to_sqd(half.now, qpn, true).unwrap();
    half.post_send(&SendWr::send(2, Data::empty()));
    let before = half.node.adapter.query_qp(qpn).unwrap();
    assert!(before.sq_draining);
    assert_eq!(
        half.node.adapter.to_rts(half.now, qpn, &Rts::Resume),
        Err(ModifyError::StillDraining)
    );
    let changes = QpUpdate { timeout: Some(3), ..QpUpdate::default() };
    assert_eq!(half.node.adapter.update(half.now, qpn, &changes), Err(ModifyError::StillDraining));
    assert_eq!(half.node.adapter.query_qp(qpn), Some(before));
    half.send(&ack(0x100 + 511, 0));
    assert_eq!(half.take().len(), 44, "the message goes on to its end");
    assert_eq!(half.node.events, []);
    half.send(&ack(0x100 + 555, 1));
    half.expect_nothing();
    assert_eq!(half.node.events, [Event::SendQueueDrained(qpn)]);
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 0));
    assert!(!half.node.adapter.query_qp(qpn).unwrap().sq_draining);
    half.node.adapter.update(half.now, qpn, &changes).unwrap();
    assert_eq!(half.node.events.len(), 1, "drained once, told once");
    half.node.adapter.to_rts(half.now, qpn, &Rts::Resume).unwrap();
    half.expect(&[pkt(Op::SendOnly, 0x100 + 556).ask()]);
}

#[test]
fn from_draining_to_error_or_reset() {
    for to in [State::Err, State::Reset] {
        let mut half = Half::with_sent(1);
        half.node.adapter.to_sqd(half.now, half.qp.qpn, true).unwrap();
        match to {
            State::Err => half.node.adapter.to_error(half.now, half.qp.qpn).unwrap(),
            _ => half.node.adapter.to_reset(half.qp.qpn).unwrap(),
        }
        let info = half.node.adapter.query_qp(half.qp.qpn).unwrap();
        assert_eq!((info.state, info.sq_draining), (to, false));
    }
}

#[test]
fn an_idle_queue_is_drained_at_once() {
    for notify in [true, false] {
        let mut half = Half::new(Options::default());
        half.node.adapter.to_sqd(half.now, half.qp.qpn, notify).unwrap();
        half.node.drain_events();
        let event = notify.then_some(Event::SendQueueDrained(half.qp.qpn));
        assert_eq!(half.node.events, event.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn error_flushes_everything_in_order() {
    let mut half = Half::new(Options { cqe: 64, ..Options::default() });
    let cq = half.node.adapter.create_cq(64).unwrap();
    let qp = half.node.qp_with(Side::A, QpType::Rc, &Options::default(), cq.clone(), cq);
    half.connect(qp, &Options::default());
    for id in 1..=3 {
        half.post_recv(&RecvWr::new(10 + id, []));
        half.post_send(&SendWr::send(id, Data::empty()).with_flags(SendFlags::empty()));
    }
    half.send(&pkt(Op::SendOnly, 0x200).ask());
    assert_eq!(half.qp.recv_outcomes(), all_ok([11], 0));
    half.node.adapter.to_error(half.now, half.qp.qpn).unwrap();
    let flushed: Vec<u64> = half.qp.send_outcomes().iter().map(|(id, _)| *id).collect();
    assert_eq!(flushed, [1, 2, 3, 12, 13]);
    half.expect_nothing();
    assert_eq!(half.node.adapter.poll_timeout(), None);
}

#[test]
fn a_queue_pair_that_was_reset_starts_anew() {
    let mut pair = Pair::new();
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let (a, b) = pair.connect(options);
    let (near, far) = (pair.a.buffer(2000).fill(1), pair.b.buffer(2000));
    for round in 0..3u32 {
        let (a_psn, b_psn) = (0x1000 * round + 5, 0xFF_FFFF - round);
        pair.a.adapter.to_reset(a.qpn).unwrap();
        pair.b.adapter.to_reset(b.qpn).unwrap();
        assert_eq!((a.sent(), b.received()), (vec![], vec![]), "reset gives no completions");
        pair.a.connect(a.qpn, pair.b.ip, b.qpn, b_psn, a_psn, &options);
        pair.b.connect(b.qpn, pair.a.ip, a.qpn, a_psn, b_psn, &options);
        pair.post_recvs(&b, 0..2, &[far.all()]);
        pair.post_send(&a, &SendWr::send(1, near.all()));
        pair.post_send(&a, &SendWr::read(2, far.remote(0), near.all()));
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(2000))]);
        assert_eq!(b.recv_outcomes(), all_ok([0], 2000));
        // for the reset: an unfinished message, one of two receives
        pair.post_send(&a, &SendWr::send(3, near.all()));
        pair.transmit(Side::A);
        while pair.network.poll_deliver(Instant::from_nanos(u64::MAX)).is_some() {}
    }
}

#[test]
fn sqe_and_back() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let to_b = pair.b.destination(b.qpn);
    let to_a = pair.a.destination(a.qpn);
    let buffer = pair.a.buffer(100);
    pair.post_recv(&a, &RecvWr::new(7, [buffer.all()]));
    let mut unreachable = to_b;
    unreachable.av.sgid_index = 5;
    pair.post_send(&a, &SendWr::send_to(1, unreachable, Data::empty()));
    pair.post_send(&a, &SendWr::send_to(2, to_b, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::LocQpOpErr)), (2, Err(WcStatus::WrFlushErr))]);
    assert_eq!(pair.state(&a), State::Sqe);
    pair.post_send(&b, &SendWr::send_to(1, to_a, Data::inline(b"hello")));
    pair.run();
    assert_eq!(a.recv_outcomes(), all_ok([7], 45));
    pair.a.adapter.to_rts(pair.now, a.qpn, &Rts::Resume).unwrap();
    let far = pair.b.buffer(100);
    pair.post_recv(&b, &RecvWr::new(8, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(3, to_b, Data::inline(b"again")));
    pair.run();
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (all_ok([3], 0), all_ok([8], 45)));
}

#[test]
fn destroyed_with_everything_pending() {
    let mut half = Half::new(Options::default());
    half.post_send(&SendWr::send(1, Data::empty()));
    half.node.adapter.destroy_qp(half.qp.qpn).unwrap();
    half.expect_nothing();
    assert_eq!(half.node.adapter.poll_timeout(), None);
    assert_eq!(half.send(&pkt(Op::SendOnly, 0x200)), Disposition::Dropped(DropReason::UnknownQp));
    assert_eq!(half.qp.sent(), []);
    // its slot's next queue pair is unaffected
    let next = half.node.qp(Side::A, QpType::Rc, &Options::default());
    half.connect(next, &Options::default());
    half.post_send(&SendWr::send(2, Data::empty()));
    half.expect(&[pkt(Op::SendOnly, 0x100).ask()]);
}

/// The next gap is new, the next message a first one.
#[test]
fn a_reset_ends_recovery_and_messages() {
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let mut half = Half::new(options);
    half.post_recv(&RecvWr::new(1, []));
    let memory = half.buffer(1024);
    half.send(&pkt(Op::WriteFirst, 0x200).reth(memory.remote(0), 1000).payload(&[1; 256]));
    half.send(&pkt(Op::WriteMiddle, 0x203).payload(&[1; 256]));
    half.post_send(&SendWr::read(1, memory.remote(0), memory.all()));
    half.take();
    half.node.adapter.to_reset(half.qp.qpn).unwrap();
    half.expect_nothing();
    assert_eq!(half.node.adapter.poll_timeout(), None);
    half.node.connect(half.qp.qpn, Half::PEER_IP, Half::PEER, Half::THEIRS, Half::OURS, &options);
    half.post_recv(&RecvWr::new(2, []));
    half.exchange(&pkt(Op::SendOnly, 0x201), &[nak(NakCode::PsnSequenceError, 0x200, 0)]);
    half.exchange(&pkt(Op::SendOnly, 0x200).ask(), &[ack(0x200, 1)]);
    assert_eq!(half.qp.recv_outcomes(), all_ok([2], 0));
    half.post_send(&SendWr::read(2, memory.remote(0), memory.all()).with_flags(SendFlags::FENCE));
    half.expect(&[pkt(Op::ReadRequest, 0x100).reth(memory.remote(0), 1024).ask()]);
}

#[test]
fn a_reset_drops_pending_responses() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(8);
    half.post_recv(&RecvWr::new(1, []));
    half.send(&pkt(Op::SendOnly, 0x200).ask());
    half.send(&pkt(Op::ReadRequest, 0x201).reth(far.remote(0), 8));
    half.send(&pkt(Op::FetchAdd, 0x202).atomic(far.remote(0), 1, 0));
    half.node.adapter.to_reset(half.qp.qpn).unwrap();
    half.node.connect(half.qp.qpn, Half::PEER_IP, Half::PEER, 0x300, 0x400, &Options::default());
    half.expect_nothing();
    // nor are duplicates known
    let again = half.send(&pkt(Op::FetchAdd, 0x202).atomic(far.remote(0), 1, 0));
    assert_eq!(again, Disposition::Dropped(DropReason::ReplayMissing));
    half.expect_nothing();
}
