use std::time::Duration;

use roce_transport::{
    adapter::AcceptError,
    addr::{Gid, Mtu, PKey},
    cm::{
        About, Accept, CmState, ConnAttribute, ConnEnd, ConnError, ConnEvent, Connect, Listen,
        Message, PortSpace, RejectReason, Rep,
    },
    event::DropReason,
    psn::Psn,
    qp::{PeerAttr, ResponderAttr, Rtr, State},
    work::{RecvWr, SendWr},
};

use super::{SERVICE, Talk, accept, connect, hand, listen, rejection, reply};
use crate::common::{Pair, Side, all_ok};

#[test]
fn both_sides_use_it_and_either_ends_it() {
    for over_ipv6 in [false, true] {
        for first in [Side::A, Side::B] {
            let mut talk = Talk::with(if over_ipv6 { Pair::over_ipv6() } else { Pair::new() });
            let (a, b, a_qp, b_qp) = talk.connected();
            let (near, far) = (talk.pair.a.buffer(5000).fill(1), talk.pair.b.buffer(5000));
            talk.pair.post_recv(&b_qp, &RecvWr::new(1, [far.all()]));
            talk.pair.post_send(&a_qp, &SendWr::send(2, near.all()));
            talk.deliver_all();
            assert_eq!(a_qp.send_outcomes(), all_ok([2], 0));
            assert_eq!(far.bytes(), near.bytes());
            let (one, other) = if first == Side::A { (a, b) } else { (b, a) };
            talk.disconnect(first, one);
            talk.deliver_all();
            assert_eq!(talk.take(first), [], "the peer has not answered");
            assert_eq!(talk.take(first.other()), [ConnEvent::Disconnected(other)]);
            talk.disconnect(first.other(), other);
            talk.deliver_all();
            assert_eq!(talk.take(first), [ConnEvent::Disconnected(one)]);
            assert_eq!(talk.pair.node(first).adapter.cm().state(one), Some(CmState::TimeWait));
            talk.pair.run();
            assert_eq!(talk.take(first), [ConnEvent::TimeWaitExit(one)]);
            assert_eq!(talk.take(first.other()), [ConnEvent::TimeWaitExit(other)]);
            talk.assert_gone();
        }
    }
}

#[test]
fn numbers_cross_over() {
    let mut talk = Talk::new();
    let (a, a_qp) = talk.call();
    talk.deliver_all();
    let (b, req) = talk.requests()[0];
    assert_eq!(
        (req.service_id, req.local_qpn, req.starting_psn),
        (SERVICE, a_qp.qpn, Psn::new(0x111))
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (3, 4));
    assert_eq!((req.retry_count, req.rnr_retry, req.path_mtu, req.max_cm_retries), (7, 6, 3, 15));
    assert_eq!(
        (req.primary.local_lid, req.primary.hop_limit, req.primary.ack_timeout),
        (0xFFFF, 64, 14)
    );
    let b_qp = talk.accept(b);
    let setup = talk.pair.b.adapter.cm().qp_setup(b).unwrap();
    assert_eq!(
        (setup.rq_psn, setup.sq_psn, setup.dest_qpn),
        (Psn::new(0x222), Psn::new(0x111), a_qp.qpn)
    );
    assert_eq!((setup.max_dest_rd_atomic, setup.max_rd_atomic), (4, 3));
    assert_eq!(
        (setup.rnr_retry, setup.retry_cnt, setup.timeout, setup.min_rnr_timer),
        (6, 7, 14, 11)
    );
    talk.deliver_all();
    let events = talk.take(Side::A);
    let rep = reply(&events[0]);
    assert_eq!(
        (rep.local_qpn, rep.starting_psn, rep.rnr_retry, rep.target_ack_delay),
        (b_qp.qpn, Psn::new(0x222), 5, 15)
    );
    let (info_a, info_b) = (
        talk.pair.a.adapter.query_qp(a_qp.qpn).unwrap(),
        talk.pair.b.adapter.query_qp(b_qp.qpn).unwrap(),
    );
    assert_eq!(
        (info_a.rq_psn, info_a.sq_psn, info_a.dest_qpn),
        (Psn::new(0x111), Psn::new(0x222), b_qp.qpn)
    );
    assert_eq!(
        (info_b.rq_psn, info_b.sq_psn, info_b.path_mtu),
        (Psn::new(0x222), Psn::new(0x111), Mtu::B1024)
    );
    assert_eq!(
        (
            info_a.responder.max_dest_rd_atomic,
            info_a.requester.max_rd_atomic,
            info_a.requester.rnr_retry
        ),
        (3, 4, 5)
    );
    assert_eq!(
        (
            info_b.responder.max_dest_rd_atomic,
            info_b.requester.max_rd_atomic,
            info_b.requester.rnr_retry
        ),
        (4, 3, 6)
    );
    assert_eq!(talk.pair.a.adapter.cm().state(a), Some(CmState::Established));
    assert_eq!(
        talk.pair.a.adapter.cm().qp_setup(a),
        None,
        "which is not kept for longer than needed"
    );
}

/// Acknowledge timeouts cover the peer's ACK delay unless chosen; codes as in Linux.
#[test]
fn the_delay_of_the_peer() {
    for (ack_timeout, delay, fits_ack_delay, expected) in [
        (16, 15, true, 17),
        (17, 15, true, 17),
        (17, 16, true, 18),
        (14, 18, true, 18),
        (14, 15, true, 16),
        (16, 0, true, 16),
        // never
        (0, 15, true, 0),
        // 2.4 hours
        (16, 31, true, 20),
        (31, 31, true, 31),
        (16, 15, false, 16),
    ] {
        let mut talk = Talk::new();
        let (end, to) = (talk.qp(Side::A), talk.pair.b.ip);
        let call = Connect { ack_timeout, fits_ack_delay, ..connect(&end, to) };
        let a = talk.pair.a.adapter.cm_connect(talk.pair.now, &call).unwrap();
        talk.deliver_all();
        let (b, req) = talk.requests()[0];
        assert_eq!(req.primary.ack_timeout, ack_timeout);
        talk.accept(b);
        let mut mad = hand::sent(&mut talk.pair, Side::B).remove(0);
        let Message::Rep(rep) = &mut mad.message else { panic!("{mad:?}") };
        rep.target_ack_delay = delay;
        hand::deliver(&mut talk.pair, Side::A, &mad);
        let own = talk.pair.a.adapter.query_qp(end.qpn).unwrap();
        assert_eq!(own.requester.timeout, expected, "{ack_timeout} and {delay}");
        assert_eq!(talk.pair.a.adapter.cm().state(a), Some(CmState::Established));
    }
}

#[test]
fn no_failover() {
    for local_lid in [0, 0xFFFF] {
        let mut talk = Talk::new();
        talk.call();
        let mad = hand::sent(&mut talk.pair, Side::A).remove(0);
        let mad = hand::change_req(mad, |req| req.alternate.local_lid = local_lid);
        hand::deliver(&mut talk.pair, Side::B, &mad);
        let (b, _) = talk.requests()[0];
        talk.accept(b);
        let sent = hand::sent(&mut talk.pair, Side::B);
        let Message::Rep(rep) = &sent[0].message else { panic!("{sent:?}") };
        assert_eq!(rep.failover, if local_lid == 0 { 0 } else { Rep::NO_FAILOVER });
    }
}

#[test]
fn queue_pairs_of_the_programs_own() {
    let mut talk = Talk::new();
    let (a_qp, b_qp) = (talk.qp(Side::A), talk.qp(Side::B));
    let a = talk.call_unmanaged(&a_qp);
    talk.deliver_all();
    let (b, _) = talk.requests()[0];
    talk.pair.b.adapter.cm_accept(talk.pair.now, b, &accept(&b_qp), false).unwrap();
    talk.deliver_all();
    assert_eq!(talk.pair.state(&b_qp), State::Init);
    assert!(matches!(talk.take(Side::A)[..], [ConnEvent::Reply { conn, .. }] if conn == a));
    let setup = talk.pair.a.adapter.cm().qp_setup(a).unwrap();
    let rtr = Rtr::Rc(
        PeerAttr {
            dest_qpn: setup.dest_qpn,
            path_mtu: setup.path_mtu.unwrap(),
            rq_psn: setup.rq_psn,
            av: setup.av,
        },
        ResponderAttr {
            max_dest_rd_atomic: setup.max_dest_rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
        },
    );
    talk.pair.a.adapter.to_rtr(a_qp.qpn, &rtr).unwrap();
    assert_eq!(talk.take(Side::B), []);
    talk.pair.a.adapter.cm_establish(a, b"ready").unwrap();
    talk.deliver_all();
    let events = talk.take(Side::B);
    let [ConnEvent::Established { conn, private_data: Some(data), .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*conn, &data.0[..6]), (b, &b"ready\0"[..]));
    assert_eq!(talk.take(Side::A), [], "the active side knows");
}

#[test]
fn private_data_in_every_message() {
    let mut talk = Talk::new();
    let end = talk.qp(Side::A);
    let data: Vec<u8> = (1..=220).collect();
    assert_eq!(talk.call_with(&end, SERVICE, &data[..93]), Err(ConnError::PrivateData(92)));
    talk.call_with(&end, SERVICE, &data[..92]).unwrap();
    talk.deliver_all();
    let (b, req) = talk.requests()[0];
    assert_eq!(req.private_data.0, data[..92]);
    let end = talk.qp(Side::B);
    let long = Accept { private_data: &data[..197], ..accept(&end) };
    assert_eq!(
        talk.pair.b.adapter.cm_accept(talk.pair.now, b, &long, true),
        Err(ConnError::PrivateData(196).into())
    );
    let right = Accept { private_data: &data[..196], ..accept(&end) };
    talk.pair.b.adapter.cm_accept(talk.pair.now, b, &right, true).unwrap();
    talk.deliver_all();
    assert_eq!(reply(&talk.take(Side::A)[0]).private_data.0, data[..196]);
}

#[test]
fn rejected_by_the_program() {
    let mut talk = Talk::new();
    let (a, b, _) = talk.requested();
    let now = talk.pair.now;
    talk.pair.b.adapter.cm_reject(now, b, RejectReason::CONSUMER, b"no, thank you").unwrap();
    assert_eq!(talk.pair.b.adapter.cm().state(b), None);
    talk.deliver_all();
    let events = talk.take(Side::A);
    let rej = rejection(&events[0]);
    assert_eq!(
        (rej.reason, rej.about, rej.local_id != 0),
        (RejectReason::CONSUMER, About::Req, true)
    );
    assert_eq!(rej.private_data.0[..14], *b"no, thank you\0");
    assert_eq!(talk.pair.a.adapter.cm().state(a), None);
    talk.assert_gone();
}

#[test]
fn rejected_by_the_adapter() {
    let b = Gid::from(Pair::new().b.ip);
    for (case, reason, info) in [
        (0, RejectReason::INVALID_SERVICE_ID, &[][..]),
        (1, RejectReason::INVALID_MTU, &[5]),
        (2, RejectReason::INVALID_GID, &b.0),
        // partition not in the port's table
        (3, RejectReason::INVALID_GID, &b.0),
    ] {
        let mut talk = Talk::new();
        let end = talk.qp(Side::A);
        let service = PortSpace::Tcp.service(if case == 0 { 7472 } else { 7471 });
        talk.call_with(&end, service, b"").unwrap();
        let mad = hand::sent(&mut talk.pair, Side::A).remove(0);
        let mad = hand::change_req(mad, |req| match case {
            1 => req.path_mtu = 6,
            2 => req.primary.remote_gid = Gid([9; 16]),
            3 => req.pkey = PKey(0xFFFE),
            _ => {}
        });
        hand::deliver(&mut talk.pair, Side::B, &mad);
        talk.deliver_all();
        let events = talk.take(Side::A);
        let rej = rejection(&events[0]);
        assert_eq!((rej.reason, rej.local_id, rej.about), (reason, 0, About::Req));
        assert_eq!(&rej.info.0[..usize::from(rej.info_length)], info);
        talk.assert_gone();
    }
}

#[test]
fn the_closest_listener() {
    let mut talk = Talk::new();
    let address = Some(talk.pair.b.ip);
    let exact =
        talk.pair.b.adapter.cm_listen(Listen { service_id: SERVICE, address, backlog: 1 }).unwrap();
    let again = talk.pair.b.adapter.cm_listen(Listen { service_id: SERVICE, address, backlog: 1 });
    assert_eq!(again, Err(ConnError::InUse));
    talk.call();
    talk.deliver_all();
    assert!(
        matches!(talk.take(Side::B)[..], [ConnEvent::Request { listener, .. }] if listener == exact)
    );
    talk.pair.b.adapter.cm_mut().unlisten(exact).unwrap();
    assert_eq!(talk.pair.b.adapter.cm_mut().unlisten(exact), Err(ConnError::Unknown));
    talk.call();
    talk.deliver_all();
    let any = talk.listener;
    assert!(
        matches!(talk.take(Side::B)[..], [ConnEvent::Request { listener, .. }] if listener == any)
    );
}

/// Sent 16 times, then a REJ notifies the peer.
#[test]
fn no_response() {
    let mut talk = Talk::new();
    talk.pair.fault_from(Side::A, "drop qp 1");
    let start = talk.pair.now;
    let (a, _) = talk.call();
    talk.pair.run();
    assert_eq!(talk.take(Side::A), [ConnEvent::Unreachable(a)]);
    assert_eq!(talk.pair.trace.records.len(), 16 + 1);
    let last = talk.pair.trace.records.last().and_then(|record| hand::mad_of(&record.bytes));
    let Some(Message::Rej(rej)) = last.map(|mad| mad.message) else { panic!() };
    assert_eq!((rej.reason, rej.info_length), (RejectReason::TIMEOUT, 8));
    assert_eq!(talk.pair.now.since(start), 16 * Duration::from_nanos(4096 << 18));
    talk.assert_gone();
}

#[test]
fn the_peer_is_gone_at_the_end() {
    let mut talk = Talk::new();
    let (a, b, ..) = talk.connected();
    talk.pair.fault_from(Side::A, "drop qp 1");
    talk.disconnect(Side::A, a);
    talk.pair.run();
    assert_eq!(talk.take(Side::A), [ConnEvent::Disconnected(a), ConnEvent::TimeWaitExit(a)]);
    assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::Established));
}

#[test]
fn both_end_it_at_once() {
    let mut talk = Talk::new();
    let (a, b, ..) = talk.connected();
    talk.disconnect(Side::A, a);
    talk.disconnect(Side::B, b);
    // the second DREP finds no connection
    talk.pair.allow(DropReason::CmWrongState);
    talk.pair.run();
    assert_eq!(talk.take(Side::A), [ConnEvent::Disconnected(a), ConnEvent::TimeWaitExit(a)]);
    assert_eq!(talk.take(Side::B), [ConnEvent::Disconnected(b), ConnEvent::TimeWaitExit(b)]);
    talk.assert_gone();
}

/// The queue pair was reset meanwhile.
#[test]
fn a_queue_pair_that_cannot_be_moved() {
    let mut talk = Talk::new();
    let (a, b, a_qp) = talk.requested();
    let b_qp = talk.qp(Side::B);
    talk.pair.b.adapter.to_reset(b_qp.qpn).unwrap();
    let refused = talk.pair.b.adapter.cm_accept(talk.pair.now, b, &accept(&b_qp), true);
    assert!(matches!(refused, Err(AcceptError::QueuePair(_))), "{refused:?}");
    assert_eq!(
        talk.pair.b.adapter.cm().state(b),
        Some(CmState::ReqRcvd),
        "it can still be accepted or rejected"
    );
    talk.accept(b);
    talk.pair.a.adapter.to_reset(a_qp.qpn).unwrap();
    talk.deliver_all();
    assert_eq!(talk.take(Side::A), [ConnEvent::ConnectError(a)]);
    let events = talk.take(Side::B);
    assert_eq!(
        (rejection(&events[0]).reason, rejection(&events[0]).about),
        (RejectReason::CONSUMER, About::Rep)
    );
    talk.pair.run();
    talk.assert_gone();
}

/// Destruction sends the response that the peer waits for.
#[test]
fn destroyed_in_every_state() {
    // before and after the REQ arrives
    for wait in [false, true] {
        let mut talk = Talk::new();
        let (a, _) = talk.call();
        if wait {
            talk.deliver_all();
        }
        talk.destroy(Side::A, a);
        talk.deliver_all();
        let events = talk.take(Side::B);
        assert!(matches!(events[0], ConnEvent::Request { .. }));
        assert_eq!(rejection(&events[1]).reason, RejectReason::TIMEOUT);
        talk.assert_gone();
    }
    let mut talk = Talk::new();
    let (_, b, _) = talk.requested();
    talk.destroy(Side::B, b);
    talk.deliver_all();
    assert_eq!(rejection(&talk.take(Side::A)[0]).reason, RejectReason::CONSUMER);
    talk.assert_gone();
    for side in [Side::A, Side::B] {
        let mut talk = Talk::new();
        let (a, b, ..) = talk.connected();
        let (own, others) = if side == Side::A { (a, b) } else { (b, a) };
        talk.destroy(side, own);
        talk.deliver_all();
        assert_eq!(talk.take(side.other()), [ConnEvent::Disconnected(others)]);
        talk.destroy(side.other(), others);
        talk.pair.run();
        assert_eq!(
            (talk.take(Side::A), talk.take(Side::B)),
            (vec![], vec![]),
            "no events after it is destroyed"
        );
        talk.assert_gone();
    }
    let mut talk = Talk::new();
    let (_, b, _) = talk.requested();
    talk.accept(b);
    talk.destroy(Side::B, b);
    talk.pair.allow(DropReason::CmWrongState);
    talk.deliver_all();
    let events = talk.take(Side::A);
    assert!(
        matches!(events[..], [ConnEvent::Established { .. }, ConnEvent::Disconnected(_)]),
        "{events:?}"
    );
}

#[test]
fn commands_at_the_wrong_time() {
    let mut talk = Talk::new();
    let (a, a_qp) = talk.call();
    let now = talk.pair.now;
    let adapter = &mut talk.pair.a.adapter;
    let state = ConnError::State(CmState::ReqSent);
    assert_eq!(adapter.cm_establish(a, b""), Err(state));
    assert_eq!(adapter.cm_mut().notify(a), Err(state));
    assert_eq!(adapter.cm_reject(now, a, RejectReason::CONSUMER, b""), Err(state));
    assert_eq!(adapter.cm_disconnect(now, a, b""), Err(state));
    assert_eq!(adapter.cm_accept(now, a, &accept(&a_qp), true), Err(state.into()));
    assert_eq!(adapter.sidr_respond(a, Err(1), b""), Err(state));
    adapter.cm_mut().destroy(now, a);
    assert_eq!(adapter.cm_mut().notify(a), Err(ConnError::Unknown));
    assert_eq!(adapter.cm_disconnect(now, a, b""), Err(ConnError::Unknown));
    for (spoil, what) in [
        ([8, 0, 0, 0], ConnAttribute::RetryCount),
        ([0, 8, 0, 0], ConnAttribute::RnrRetry),
        ([0, 0, 32, 0], ConnAttribute::MinRnrTimer),
        ([0, 0, 0, 32], ConnAttribute::AckTimeout),
    ] {
        let [retry_count, rnr_retry, min_rnr_timer, ack_timeout] = spoil;
        let usual = connect(&a_qp, [10, 0, 0, 2].into());
        let end = ConnEnd { rnr_retry, min_rnr_timer, ..usual.end };
        let call = Connect { retry_count, ack_timeout, end, ..usual };
        assert_eq!(adapter.cm_connect(now, &call), Err(ConnError::Range(what)));
    }
    let call = connect(&a_qp, "fd00::2".parse().unwrap());
    assert_eq!(adapter.cm_connect(now, &call), Err(ConnError::NoRoute));
    talk.deliver_all();
    let events = talk.take(Side::B);
    assert!(
        matches!(events[..], [ConnEvent::Request { .. }, ConnEvent::Rejected { .. }]),
        "{events:?}"
    );
    talk.assert_gone();
}

#[test]
fn a_full_backlog() {
    let mut talk = Talk::new();
    talk.pair.b.adapter.cm_mut().unlisten(talk.listener).unwrap();
    talk.listener = listen(&mut talk.pair.b, SERVICE, 2);
    talk.pair.allow(DropReason::CmBacklog);
    for _ in 0..3 {
        talk.call();
    }
    talk.deliver_all();
    let waiting = talk.requests();
    assert_eq!(waiting.len(), 2);
    assert_eq!(talk.pair.dropped(DropReason::CmBacklog), 1);
    talk.accept(waiting[0].0);
    talk.pair.run_for(Duration::from_millis(1200));
    let events = talk.take(Side::B);
    assert!(events.iter().any(|event| matches!(event, ConnEvent::Request { .. })), "{events:?}");
}

#[test]
fn many_at_once() {
    let mut talk = Talk::new();
    for _ in 0..200 {
        talk.connected();
    }
    assert_eq!((talk.pair.a.adapter.cm().count(), talk.pair.b.adapter.cm().count()), (200, 200));
    assert_eq!(talk.pair.a.adapter.poll_timeout(), None, "an idle connection takes no time");
}

/// A retries REQs while the peer has no listener.
pub(crate) fn with_listen_grace() -> Talk {
    Talk::configured(Side::A, |cm| cm.listen_grace = Duration::from_millis(100))
}

#[test]
fn a_listener_that_comes_a_little_later_is_found() {
    let mut talk = with_listen_grace();
    let listener = talk.listener;
    talk.pair.b.adapter.cm_mut().unlisten(listener).unwrap();
    let (a, _) = talk.call();
    talk.pair.run_for(Duration::from_millis(55));
    assert_eq!(
        (talk.take(Side::A), talk.pair.a.adapter.cm().state(a)),
        (vec![], Some(CmState::ReqSent))
    );
    assert_eq!(talk.pair.trace.records.len(), 2 * 6, "a request every ten milliseconds");
    listen(&mut talk.pair.b, SERVICE, 1);
    talk.deliver_all();
    let (b, _) = talk.requests()[0];
    talk.accept(b);
    talk.deliver_all();
    assert!(matches!(talk.take(Side::A)[..], [ConnEvent::Established { conn, .. }] if conn == a));
}

#[test]
fn listen_grace_has_an_end() {
    let mut talk = with_listen_grace();
    let end = talk.qp(Side::A);
    let start = talk.pair.now;
    talk.call_with(&end, PortSpace::Tcp.service(1), b"").unwrap();
    talk.pair.run();
    assert_eq!(rejection(&talk.take(Side::A)[0]).reason, RejectReason::INVALID_SERVICE_ID);
    assert!(
        (100..=120).contains(&talk.pair.now.since(start).as_millis()),
        "{:?}",
        talk.pair.now.since(start)
    );
    // other rejections are final
    let (_, b, _) = talk.requested();
    talk.pair.b.adapter.cm_reject(talk.pair.now, b, RejectReason::CONSUMER, b"").unwrap();
    talk.deliver_all();
    assert_eq!(rejection(&talk.take(Side::A)[0]).reason, RejectReason::CONSUMER);
    talk.assert_gone();
}

#[test]
fn a_service_that_is_offered_a_little_later_is_found() {
    let mut talk = with_listen_grace();
    let av = roce_transport::addr::AddressVector::new(talk.pair.b.ip.into(), 0);
    let service = PortSpace::Udp.service(7);
    talk.pair.a.adapter.sidr_request(talk.pair.now, service, &av, b"").unwrap();
    talk.deliver_all();
    assert_eq!(talk.take(Side::A), []);
    listen(&mut talk.pair.b, service, 1);
    talk.deliver_all();
    assert!(matches!(talk.take(Side::B)[..], [ConnEvent::SidrRequest { .. }]));
}
