//! Shared receive queues (10.2.9).

use roce_transport::{
    adapter::ObjectError,
    event::{DropReason, Event},
    mem::Access,
    qp::{PostError, QpType, State},
    work::{RecvWr, SendWr, SrqAttr, SrqError, SrqId, SrqInfo, WcStatus},
};

use crate::common::{Buffer, End, Options, Pair, Side, all_ok};

const ATTR: SrqAttr = SrqAttr { max_wr: 8, max_sge: 2 };

fn shared(pair: &mut Pair) -> (SrqId, Buffer) {
    let pd = pair.b.pd;
    (pair.b.adapter.create_srq(pd, ATTR).unwrap(), pair.b.buffer(4096))
}

fn connect(pair: &mut Pair, srq: SrqId) -> (End, End) {
    pair.connect_with(Options::default(), Options { srq: Some(srq), ..Options::default() })
}

fn post(pair: &mut Pair, srq: SrqId, id: u64, buffer: &Buffer) {
    pair.b.adapter.post_srq_recv(srq, &RecvWr::new(id, [buffer.sge(0, 1024)])).unwrap();
}

#[test]
fn each_message_takes_the_next_request_of_the_shared_queue() {
    let mut pair = Pair::new();
    let (srq, buffer) = shared(&mut pair);
    let (one, other) = (connect(&mut pair, srq), connect(&mut pair, srq));
    for id in 0..4 {
        post(&mut pair, srq, id, &buffer);
    }
    let near = pair.a.buffer(64);
    for from in [&one.0, &other.0, &other.0, &one.0] {
        pair.post_send(from, &SendWr::send(9, near.sge(0, 10)));
        pair.run();
    }
    assert_eq!(one.1.recv_outcomes(), all_ok([0, 3], 10));
    let received = other.1.received();
    assert!(received.iter().all(|wc| wc.qpn == other.1.qpn));
    assert_eq!(received.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(pair.b.adapter.query_srq(srq), Some(SrqInfo { attr: ATTR, limit: 0, posted: 0 }));
}

#[test]
fn the_limit_is_told_once_until_it_is_set_again() {
    let mut pair = Pair::new();
    let (srq, buffer) = shared(&mut pair);
    let (a, _b) = connect(&mut pair, srq);
    for id in 0..6 {
        post(&mut pair, srq, id, &buffer);
    }
    let near = pair.a.buffer(64);
    let limits_after_send = |pair: &mut Pair| {
        pair.post_send(&a, &SendWr::send(9, near.sge(0, 10)));
        pair.run();
        pair.events(Side::B)
            .into_iter()
            .filter(|event| *event == Event::SrqLimitReached(srq))
            .count()
    };
    pair.b.adapter.set_srq_limit(srq, 5).unwrap();
    assert_eq!(limits_after_send(&mut pair), 0, "five are left");
    assert_eq!(limits_after_send(&mut pair), 1);
    assert_eq!(limits_after_send(&mut pair), 0);
    pair.b.adapter.set_srq_limit(srq, 8).unwrap();
    assert_eq!(limits_after_send(&mut pair), 1);
}

#[test]
fn an_empty_one_is_not_ready() {
    let mut pair = Pair::new();
    let (srq, buffer) = shared(&mut pair);
    let (a, b) = connect(&mut pair, srq);
    pair.allow(DropReason::OutOfSequence);
    let near = pair.a.buffer(64);
    pair.post_send(&a, &SendWr::send(1, near.sge(0, 10)));
    pair.post_send(
        &a,
        &SendWr::write(2, buffer.remote(2000), near.sge(0, 10)).with_immediate([1; 4]),
    );
    pair.run_for(std::time::Duration::from_millis(2));
    assert!(a.sent().is_empty() && pair.b.adapter.counters().rnr_naks_sent > 0);
    post(&mut pair, srq, 7, &buffer);
    pair.run_for(std::time::Duration::from_millis(2));
    assert_eq!(b.recv_outcomes(), all_ok([7], 10));
    post(&mut pair, srq, 8, &buffer);
    pair.run();
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (all_ok([1, 2], 0), all_ok([8], 10)));
}

/// A queue pair flushes only requests it took.
#[test]
fn a_failed_queue_pair_leaves_the_rest_to_the_others() {
    let mut pair = Pair::new();
    let (srq, buffer) = shared(&mut pair);
    let (one, other) = (connect(&mut pair, srq), connect(&mut pair, srq));
    post(&mut pair, srq, 1, &buffer);
    post(&mut pair, srq, 2, &buffer);
    // only the first of two packets arrives
    pair.fault("drop send last");
    pair.allow_all(&[DropReason::QpState]);
    let near = pair.a.buffer(2048);
    pair.post_send(&one.0, &SendWr::send(9, near.sge(0, 1500)));
    pair.run_for(std::time::Duration::from_micros(50));
    pair.b.adapter.to_error(pair.now, one.1.qpn).unwrap();
    assert_eq!(one.1.recv_outcomes(), [(1, Err(WcStatus::WrFlushErr))]);
    pair.b.drain_events();
    assert_eq!(
        pair.b.events.iter().filter(|event| **event == Event::LastWqeReached(one.1.qpn)).count(),
        1
    );
    pair.post_send(&other.0, &SendWr::send(9, near.sge(0, 10)));
    pair.run();
    assert_eq!(other.1.recv_outcomes(), all_ok([2], 10));
}

#[test]
fn unreliable_services_take_from_it_too() {
    let mut pair = Pair::new();
    let (srq, buffer) = shared(&mut pair);
    let b = pair.b.qp(Side::B, QpType::Ud, &Options { srq: Some(srq), ..Options::default() });
    let a = pair.a.qp(Side::A, QpType::Ud, &Options::default());
    pair.a.start_datagrams(a.qpn, &Options::default());
    pair.b.start_datagrams(b.qpn, &Options::default());
    let near = pair.a.buffer(64);
    let to = pair.b.destination(b.qpn);
    post(&mut pair, srq, 1, &buffer);
    pair.post_send(&a, &SendWr::send_to(1, to, near.sge(0, 10)));
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 50));
    pair.allow(DropReason::NoReceiveRequest);
    pair.post_send(&a, &SendWr::send_to(2, to, near.sge(0, 10)));
    pair.run();
    assert_eq!(pair.dropped(DropReason::NoReceiveRequest), 1);
}

#[test]
fn requests_belong_to_its_protection_domain() {
    let mut pair = Pair::new();
    let pd = pair.b.adapter.alloc_pd().unwrap();
    let srq = pair.b.adapter.create_srq(pd, ATTR).unwrap();
    let buffer = pair.b.buffer_in(pd, 1024, Access::LOCAL_WRITE);
    let (a, b) = connect(&mut pair, srq);
    post(&mut pair, srq, 1, &buffer);
    let near = pair.a.buffer(64);
    pair.post_send(&a, &SendWr::send(1, near.sge(0, 10)));
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 10));
    let foreign = pair.b.buffer(1024);
    post(&mut pair, srq, 2, &foreign);
    pair.post_send(&a, &SendWr::send(2, near.sge(0, 10)));
    pair.run();
    assert_eq!(b.recv_outcomes(), [(2, Err(WcStatus::LocProtErr))]);
    assert_eq!((a.send_outcomes()[1].1, pair.state(&b)), (Err(WcStatus::RemOpErr), State::Err));
}

#[test]
fn what_is_refused() {
    let mut pair = Pair::new();
    let (srq, buffer) = shared(&mut pair);
    let (_a, b) = connect(&mut pair, srq);
    let wr = RecvWr::new(1, [buffer.sge(0, 8)]);
    assert_eq!(pair.try_post_recv(&b, &wr), Err(PostError::SharedQueue));
    let adapter = &mut pair.b.adapter;
    let three = RecvWr::new(1, [buffer.sge(0, 8); 3]);
    assert_eq!(adapter.post_srq_recv(srq, &three), Err(PostError::TooManySges { limit: 2 }));
    for _ in 0..8 {
        adapter.post_srq_recv(srq, &wr).unwrap();
    }
    assert_eq!(adapter.post_srq_recv(srq, &wr), Err(PostError::QueueFull));
    assert_eq!(adapter.resize_srq(srq, 7), Err(SrqError::Posted(8)));
    assert_eq!(adapter.resize_srq(srq, 0), Err(SrqError::Size(1 << 15)));
    assert_eq!(adapter.set_srq_limit(srq, 9), Err(SrqError::Limit(8)));
    adapter.resize_srq(srq, 9).unwrap();
    adapter.set_srq_limit(srq, 9).unwrap();
    assert_eq!(adapter.resize_srq(srq, 8), Err(SrqError::Limit(8)));
    adapter.post_srq_recv(srq, &wr).unwrap();
    assert_eq!(adapter.destroy_srq(srq), Err(ObjectError::InUse));
    adapter.destroy_qp(b.qpn).unwrap();
    adapter.destroy_srq(srq).unwrap();
    assert_eq!(adapter.destroy_srq(srq), Err(ObjectError::Unknown));
    assert_eq!(adapter.post_srq_recv(srq, &wr), Err(PostError::UnknownSrq));
    assert_eq!(adapter.set_srq_limit(srq, 0), Err(SrqError::UnknownSrq));
    assert_eq!(adapter.query_srq(srq), None);
    let pd = pair.b.pd;
    let wrong = SrqAttr { max_wr: 0, max_sge: 1 };
    assert!(matches!(pair.b.adapter.create_srq(pd, wrong), Err(ObjectError::Size { .. })));
}
