use std::time::Duration;

use roce_transport::{
    addr::{AddressVector, QKey},
    event::DropReason,
    mem::Access,
    psn::Psn,
    qp::{PeerAttr, QpType, QpUpdate, RequesterAttr, ResponderAttr, Rtr, Rts, State},
    time::{Instant, ack_timeout},
    wire::{NakCode, Operation as Op},
    work::{Data, RecvWr, SendWr, UdDestination, WcStatus},
};

use crate::common::{Half, Options, Pair, QKEY, Side, ack, all_ok, nak, pkt, rnr};

const NONE: QpUpdate = QpUpdate::NONE;

fn new_rnr_timer(code: u8) -> QpUpdate {
    QpUpdate { min_rnr_timer: Some(code), ..NONE }
}

/// RTS→SQD→SQD with changes→RTS.
fn change_in_sqd(half: &mut Half, changes: QpUpdate) {
    let (now, qpn) = (half.now, half.qp.qpn);
    half.node.adapter.to_sqd(now, qpn, false).unwrap();
    half.node.adapter.update(now, qpn, &changes).unwrap();
    half.node.adapter.to_rts(now, qpn, &Rts::Resume).unwrap();
}

#[test]
fn rights_taken_away_and_given_on_every_edge() {
    let write = QpUpdate { access: Some(Access::REMOTE_WRITE), ..NONE };
    for given_by in 0..5 {
        let options = Options { access: Access::empty(), ..Options::default() };
        let mut half = Half::reset(options);
        let (now, qpn) = (half.now, half.qp.qpn);
        let memory = half.buffer(8);
        half.node.enter_init(qpn, &options);
        let adapter = &mut half.node.adapter;
        if given_by == 0 {
            adapter.update(now, qpn, &write).unwrap();
        }
        let rtr = Rtr::Rc(
            PeerAttr {
                dest_qpn: Half::PEER,
                path_mtu: options.mtu,
                rq_psn: Psn::new(Half::THEIRS),
                av: AddressVector::new(Half::PEER_IP.into(), 0),
            },
            ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 1 },
        );
        adapter.to_rtr_with(qpn, &rtr, if given_by == 1 { &write } else { &NONE }).unwrap();
        let rts = Rts::Rc(
            Psn::new(Half::OURS),
            RequesterAttr { timeout: 10, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 },
        );
        adapter.to_rts_with(now, qpn, &rts, if given_by == 2 { &write } else { &NONE }).unwrap();
        if given_by == 3 {
            adapter.to_sqd(now, qpn, false).unwrap();
            adapter.to_rts_with(now, qpn, &Rts::Resume, &write).unwrap();
        }
        let request =
            |psn| pkt(Op::WriteOnly, psn).reth(memory.remote(0), 4).payload(&[1; 4]).ask();
        half.send(&request(Half::THEIRS));
        if given_by == 4 {
            half.expect(&[nak(NakCode::InvalidRequest, Half::THEIRS, 0)]);
        } else {
            half.expect(&[ack(Half::THEIRS, 1)]);
            let nothing = QpUpdate { access: Some(Access::empty()), ..NONE };
            half.node.adapter.to_rts_with(now, qpn, &Rts::Resume, &nothing).unwrap();
            half.send(&request(Half::THEIRS + 1));
            half.expect(&[nak(NakCode::InvalidRequest, Half::THEIRS + 1, 1)]);
        }
    }
}

#[test]
fn the_rnr_timer() {
    let mut half = Half::new(Options { min_rnr_timer: 12, ..Options::default() });
    half.exchange(&pkt(Op::SendOnly, 0x200), &[rnr(12, 0x200, 0)]);
    half.node.adapter.update(half.now, half.qp.qpn, &new_rnr_timer(5)).unwrap();
    half.exchange(&pkt(Op::SendOnly, 0x200), &[rnr(5, 0x200, 0)]);
    change_in_sqd(&mut half, new_rnr_timer(31));
    half.exchange(&pkt(Op::SendOnly, 0x200), &[rnr(31, 0x200, 0)]);
    let (now, qpn) = (half.now, half.qp.qpn);
    half.node.adapter.to_sqd(now, qpn, false).unwrap();
    half.node.adapter.to_rts_with(now, qpn, &Rts::Resume, &new_rnr_timer(9)).unwrap();
    half.exchange(&pkt(Op::SendOnly, 0x200), &[rnr(9, 0x200, 0)]);
}

#[test]
fn the_rnr_timer_on_the_way_to_rts() {
    let options = Options { min_rnr_timer: 12, ..Options::default() };
    let mut half = Half::reset(options);
    let (now, qpn) = (half.now, half.qp.qpn);
    half.node.enter_init(qpn, &options);
    half.node.enter_rtr(qpn, Half::PEER_IP, Half::PEER, Half::THEIRS, &options);
    let rts = Rts::Rc(
        Psn::new(0),
        RequesterAttr { timeout: 10, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 },
    );
    half.node.adapter.to_rts_with(now, qpn, &rts, &new_rnr_timer(5)).unwrap();
    half.exchange(&pkt(Op::SendOnly, 0x200), &[rnr(5, 0x200, 0)]);
}

#[test]
fn timeout_and_retries() {
    let mut half = Half::new(Options { timeout: 10, retry_cnt: 7, ..Options::default() });
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    half.send(&ack(0x100, 1));
    change_in_sqd(&mut half, QpUpdate { retry_cnt: Some(1), ..NONE });
    change_in_sqd(&mut half, QpUpdate { timeout: Some(12), ..NONE });
    half.qp.sent();
    half.post_send(&SendWr::send(2, Data::empty()));
    half.expect(&[pkt(Op::SendOnly, 0x101).ask()]);
    let timeout = ack_timeout(12).unwrap();
    half.advance(timeout - Duration::from_nanos(1));
    half.take(); // probes are no retries
    assert_eq!(half.node.adapter.counters().timeouts, 0);
    half.advance(Duration::from_nanos(1));
    half.expect(&[pkt(Op::SendOnly, 0x101).ask()]);
    assert_eq!(half.node.adapter.counters().timeouts, 1);
    half.advance(timeout * 2);
    assert_eq!(
        half.qp.send_outcomes(),
        [(2, Err(WcStatus::RetryExcErr))],
        "one retry, and no more"
    );
}

#[test]
fn rnr_retries() {
    let mut half = Half::new(Options { rnr_retry: 7, ..Options::default() });
    change_in_sqd(&mut half, QpUpdate { rnr_retry: Some(0), ..NONE });
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    half.send(&rnr(1, 0x100, 0));
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::RnrRetryExcErr))]);
}

#[test]
fn reads_at_once() {
    let mut half = Half::new(Options { max_rd_atomic: 1, ..Options::default() });
    let (to, from) = (half.buffer(8), half.buffer(8));
    change_in_sqd(&mut half, QpUpdate { max_rd_atomic: Some(3), ..NONE });
    for id in 0..5 {
        half.post_send(&SendWr::read(id, from.remote(0), to.all()));
    }
    assert_eq!(half.take().len(), 3);
}

/// A limit of 0 forgets all.
#[test]
fn reads_of_the_peer() {
    let mut half = Half::new(Options { max_dest_rd_atomic: 4, ..Options::default() });
    let memory = half.buffer(64);
    let read = |psn| pkt(Op::ReadRequest, psn).reth(memory.remote(0), 8).ask();
    for psn in 0x200..0x204 {
        half.send(&read(psn));
    }
    half.take();
    change_in_sqd(&mut half, QpUpdate { max_dest_rd_atomic: Some(2), ..NONE });
    for (psn, answered) in [(0x200, false), (0x201, false), (0x202, true), (0x203, true)] {
        half.send(&read(psn));
        assert_eq!(half.take().len(), usize::from(answered), "{psn:#x}");
    }
    change_in_sqd(&mut half, QpUpdate { max_dest_rd_atomic: Some(0), ..NONE });
    half.exchange(&read(0x204), &[nak(NakCode::InvalidRequest, 0x204, 4)]);
}

#[test]
fn the_way_to_the_peer() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::new();
        let (a, b) = match qp_type {
            QpType::Rc => pair.connect(Options::default()),
            _ => pair.connect_unreliably(Options::default()),
        };
        let av = AddressVector {
            hop_limit: 3,
            traffic_class: 0x68,
            ..AddressVector::new(pair.b.ip.into(), 0)
        };
        let now = pair.now;
        pair.a.adapter.to_sqd(now, a.qpn, false).unwrap();
        pair.a.adapter.update(now, a.qpn, &QpUpdate { av: Some(av), ..NONE }).unwrap();
        assert_eq!(pair.a.adapter.query_qp(a.qpn).unwrap().av, Some(av));
        pair.a.adapter.to_rts(now, a.qpn, &Rts::Resume).unwrap();
        pair.post_recv(&b, &RecvWr::new(1, []));
        pair.post_recv(&a, &RecvWr::new(2, []));
        pair.post_send(&a, &SendWr::send(3, Data::empty()));
        pair.post_send(&b, &SendWr::send(4, Data::empty()));
        pair.run();
        let from_a: Vec<_> = pair
            .trace
            .from(Side::A)
            .map(|record| (record.net.hop_limit, record.net.traffic_class))
            .collect();
        // connections that react to CNPs add ECT(0)
        let expected = if qp_type == QpType::Rc { vec![(3, 0x6A); 2] } else { vec![(3, 0x68)] };
        assert_eq!(from_a, expected);
        assert!(pair.trace.from(Side::B).all(|record| record.net.hop_limit == 64));
        assert_eq!((b.recv_outcomes(), a.recv_outcomes()), (all_ok([1], 0), all_ok([2], 0)));
    }
}

/// A key can change from INIT on, except in ERR.
#[test]
fn queue_keys() {
    let other = QKey(0x2222_2222);
    let key = QpUpdate { qkey: Some(other), ..NONE };
    for edge in 0..6 {
        let mut pair = Pair::new();
        let options = Options::default();
        let (a, b) = pair.datagrams(options);
        let now = pair.now;
        let adapter = &mut pair.b.adapter;
        if edge < 3 {
            adapter.to_reset(b.qpn).unwrap();
            pair.b.enter_init(b.qpn, &options);
            let adapter = &mut pair.b.adapter;
            if edge == 0 {
                adapter.update(now, b.qpn, &key).unwrap();
            }
            adapter.to_rtr_with(b.qpn, &Rtr::Ud, if edge == 1 { &key } else { &NONE }).unwrap();
            let rts = Rts::Ud(Psn::new(0));
            adapter.to_rts_with(now, b.qpn, &rts, if edge == 2 { &key } else { &NONE }).unwrap();
        } else if edge == 3 {
            adapter.update(now, b.qpn, &key).unwrap();
        } else {
            adapter.to_sqd(now, b.qpn, false).unwrap();
            if edge == 4 {
                adapter.update(now, b.qpn, &key).unwrap();
            }
            adapter
                .to_rts_with(now, b.qpn, &Rts::Resume, if edge == 5 { &key } else { &NONE })
                .unwrap();
        }
        pair.allow(DropReason::QKey);
        let to = pair.b.destination(b.qpn);
        let memory = pair.b.buffer(40);
        pair.post_recv(&b, &RecvWr::new(1, [memory.all()]));
        pair.post_send(&a, &SendWr::send_to(1, UdDestination { qkey: QKEY, ..to }, Data::empty()));
        pair.run();
        assert_eq!(b.recv_outcomes(), [], "edge {edge}: the old key");
        pair.post_send(&a, &SendWr::send_to(2, UdDestination { qkey: other, ..to }, Data::empty()));
        pair.run();
        assert_eq!(b.recv_outcomes(), all_ok([1], 40), "edge {edge}: the new key");
        assert_eq!(pair.b.adapter.counters().qkey_violations, 1);
    }
}

#[test]
fn a_queue_key_on_the_way_out_of_sqe() {
    let mut pair = Pair::new();
    let (a, _b) = pair.datagrams(Options::default());
    let unreachable = pair.b.destination(a.qpn);
    let unreachable =
        UdDestination { av: AddressVector { sgid_index: 9, ..unreachable.av }, ..unreachable };
    pair.post_send(&a, &SendWr::send_to(1, unreachable, Data::empty()));
    pair.run();
    assert_eq!(pair.state(&a), State::Sqe);
    let key = QpUpdate { current_state: Some(State::Sqe), qkey: Some(QKey(5)), ..NONE };
    pair.a.adapter.to_rts_with(Instant::ZERO, a.qpn, &Rts::Resume, &key).unwrap();
    assert_eq!(
        pair.a.adapter.query_qp(a.qpn).map(|info| (info.state, info.qkey)),
        Some((State::Rts, QKey(5)))
    );
}
