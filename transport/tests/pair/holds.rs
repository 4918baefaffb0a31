//! Bounded work per call: the caller holds the device's lock.

use std::{sync::Arc, time::Duration};

use roce_transport::{
    adapter::{Adapter, TransmitBuffer, TransmitLimits},
    addr::Qpn,
    qp::{QpCaps, QpType},
    time::Instant,
    work::{CqRoom, Data, RecvWr, SendWr, SrqAttr, WcStatus},
};

use crate::common::{End, Half, Node, Options, Pair, Side, all_ok};

const MANY: usize = 1000;

/// Queue pairs in RTS with a peer host each.
fn many(node: &mut Node, options: &Options) -> Vec<End> {
    let connect = |index: usize| {
        let end = node.qp(Side::A, QpType::Rc, options);
        let [.., high, low] = index.to_be_bytes();
        node.connect(end.qpn, [10, 1, high, low].into(), Half::PEER, 1, 1, options);
        end
    };
    (0..MANY).map(connect).collect()
}

fn buffer() -> TransmitBuffer {
    TransmitBuffer::new(1 << 20, TransmitLimits { segments: 64, bytes: 65507 })
}

/// All might have work; none has.
#[test]
fn a_buffer_is_not_filled_by_asking_all() {
    let mut half = Half::new(Options::default());
    let _ends = many(&mut half.node, &Options { cqe: 1, ..Options::default() });
    let mut buffer = buffer();
    for call in 1.. {
        buffer.clear();
        half.node.adapter.poll_transmit(half.now, &mut buffer);
        assert!(buffer.is_empty());
        if !buffer.may_have_more() {
            assert_eq!(call, MANY.div_ceil(128));
            return;
        }
    }
}

#[test]
fn timers_that_fire_together_are_served_in_portions() {
    let mut half = Half::new(Options::default());
    let ends = many(&mut half.node, &Options { cqe: 8, ..Options::default() });
    let adapter = &mut half.node.adapter;
    for end in &ends {
        adapter.post_send(half.now, end.qpn, &SendWr::send(1, Data::empty())).unwrap();
    }
    let mut buffer = buffer();
    let mut sent = 0;
    while sent < MANY {
        buffer.clear();
        adapter.poll_transmit(half.now, &mut buffer);
        sent += buffer.datagrams().count();
    }
    // after every timer
    let late = half.now.plus(Duration::from_secs(60));
    let fired = |adapter: &Adapter| adapter.counters().timeouts + adapter.counters().tail_probes;
    for portion in 1.. {
        let before = fired(adapter);
        adapter.handle_timeout(late);
        let served = fired(adapter) - before;
        assert!(served <= 64, "{served} at once");
        if fired(adapter) == MANY as u64 {
            assert_eq!(portion, MANY.div_ceil(64));
            return;
        }
        assert!(adapter.poll_timeout().is_some_and(|at| at <= late), "the rest is still due");
    }
}

#[test]
fn portions_forget_nobody() {
    let mut pair = Pair::new();
    let options = Options { cqe: 8, ..Options::default() };
    let ends: Vec<_> = (0..MANY).map(|_| pair.connect(options)).collect();
    pair.fault(&format!("drop times {MANY}"));
    for (a, b) in &ends {
        pair.post_recv(b, &RecvWr::new(1, []));
        pair.post_send(a, &SendWr::send(1, Data::empty()));
    }
    pair.run();
    assert!(ends.iter().all(|(a, _)| a.send_outcomes().len() == 1));
    assert!(pair.now < Instant::from_nanos(60_000_000_000));
}

/// In order, before later posts.
#[test]
fn thousands_of_requests_are_flushed_in_portions() {
    const REQUESTS: u64 = 3000;
    let max_send_wr = REQUESTS as u32 + 1;
    let caps = QpCaps { max_send_wr, max_recv_wr: max_send_wr, ..Options::default().caps };
    let options = Options { caps, cqe: 2 * max_send_wr as usize, ..Options::default() };
    let mut half = Half::new(options);
    let qpn = half.qp.qpn;
    let adapter = &mut half.node.adapter;
    for id in 0..REQUESTS {
        adapter.post_send(half.now, qpn, &SendWr::send(id, Data::empty())).unwrap();
        adapter.post_recv(half.now, qpn, &RecvWr::new(id, [])).unwrap();
    }
    adapter.to_error(half.now, qpn).unwrap();
    let (sends, recvs) = (half.qp.send_cq.clone(), half.qp.recv_cq.clone());
    let told = || (sends.len() + recvs.len()) as u64;
    assert_eq!(told(), 128);
    adapter.post_send(half.now, qpn, &SendWr::send(REQUESTS, Data::empty())).unwrap();
    adapter.post_recv(half.now, qpn, &RecvWr::new(REQUESTS, [])).unwrap();
    let mut buffer = buffer();
    loop {
        let before = told();
        buffer.clear();
        adapter.poll_transmit(half.now, &mut buffer);
        assert!(buffer.is_empty());
        assert!(told() - before <= 128, "{} at once", told() - before);
        if !buffer.may_have_more() {
            break;
        }
    }
    let flushed: Vec<_> = (0..=REQUESTS).map(|id| (id, Err(WcStatus::WrFlushErr))).collect();
    assert_eq!(half.qp.send_outcomes(), flushed);
    assert_eq!(half.qp.recv_outcomes(), flushed);
}

/// Senders are not blocked. A reset ends the flush.
#[test]
fn a_flush_that_is_under_way() {
    let caps = QpCaps { max_recv_wr: 1000, ..Options::default().caps };
    let (mut pair, a, _) = Pair::connected(Options { caps, ..Options::default() });
    let (other, far) = pair.connect(Options::default());
    for id in 0..1000 {
        pair.a.adapter.post_recv(pair.now, a.qpn, &RecvWr::new(id, [])).unwrap();
    }
    pair.a.adapter.to_error(pair.now, a.qpn).unwrap();
    pair.post_recv(&far, &RecvWr::new(1, []));
    pair.post_send(&other, &SendWr::send(1, Data::empty()));
    let mut buffer = buffer();
    for _ in 0..2 {
        buffer.clear();
        pair.a.adapter.poll_transmit(pair.now, &mut buffer);
    }
    assert_eq!(buffer.datagrams().count(), 1, "behind one portion");
    pair.a.adapter.to_reset(a.qpn).unwrap();
    let told = a.recv_cq.len();
    assert!(told < 1000);
    pair.run();
    assert_eq!(a.recv_cq.len(), told);
}

#[test]
fn requests_of_a_queue_pair_that_goes() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let buffer = pair.a.buffer(64);
    for id in 0..3 {
        pair.post_send(&a, &SendWr::send(id, buffer.all()));
        pair.post_recv(&a, &RecvWr::new(id, [buffer.all()]));
    }
    let held = Arc::strong_count(&buffer.region);
    let requests = pair.a.adapter.abandon_requests(a.qpn).unwrap();
    pair.a.adapter.to_reset(a.qpn).unwrap();
    assert_eq!((requests.len(), Arc::strong_count(&buffer.region)), ([3, 3], held));
    drop(requests);
    assert_eq!(Arc::strong_count(&buffer.region), held - 6);
    pair.b.adapter.to_reset(b.qpn).unwrap();
    let options = Options::default();
    pair.a.connect(a.qpn, pair.b.ip, b.qpn, 0x200, 0x100, &options);
    pair.b.connect(b.qpn, pair.a.ip, a.qpn, 0x100, 0x200, &options);
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    assert_eq!(a.recv_outcomes(), []);
    assert!(pair.a.adapter.abandon_requests(Qpn::new(7)).is_none());
}

#[test]
fn requests_of_a_shared_receive_queue_that_goes() {
    let mut half = Half::new(Options::default());
    let pd = half.node.pd;
    let adapter = &mut half.node.adapter;
    let srq = adapter.create_srq(pd, SrqAttr { max_wr: 8, max_sge: 1 }).unwrap();
    (0..5).for_each(|id| adapter.post_srq_recv(srq, &RecvWr::new(id, [])).unwrap());
    assert_eq!(adapter.abandon_srq_requests(srq).unwrap().len(), [0, 5]);
    adapter.destroy_srq(srq).unwrap();
    assert!(adapter.abandon_srq_requests(srq).is_none());
}

#[test]
fn a_completion_queue_gets_room_that_is_there() {
    let mut half = Half::new(Options::default());
    let limit = half.node.adapter.limits().max_cqe;
    let adapter = &mut half.node.adapter;
    assert!(adapter.fits_cq(0).is_err() && adapter.fits_cq(limit + 1).is_err());
    let cq = adapter.create_cq_in(CqRoom::new(10)).unwrap();
    assert!(cq.lacks(10).is_none());
    let room = cq.lacks(11).unwrap();
    assert_eq!((cq.capacity(), room.capacity()), (10, 20), "it doubles at least");
    adapter.resize_cq(cq.id(), 11, Some(room)).unwrap();
    assert!(cq.capacity() == 11 && cq.lacks(20).is_none());
    adapter.resize_cq(cq.id(), 50, Some(CqRoom::new(20))).unwrap(); // too small: made there
    assert!(cq.capacity() == 50 && cq.lacks(50).is_none());
}
