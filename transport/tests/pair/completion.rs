//! Completions: signaling, fields and events (11.4.2, 11.6.2).

use roce_transport::{
    adapter::ObjectError,
    event::Event,
    qp::{QpType, State},
    time::Instant,
    wire::{Immediate, Operation as Op, Syndrome},
    work::{Data, NotifyKind, RecvWr, SendFlags, SendWr, Wc, WcOk, WcOpcode},
};

use crate::common::{Half, Options, Pair, Side, ack, all_ok, pkt};

const UNSIGNALED: SendFlags = SendFlags::empty();

#[test]
fn only_signaled_requests_complete() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    for id in 0..6 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        let wr = SendWr::send(id, Data::empty());
        pair.post_send(&a, &if id % 3 == 2 { wr } else { wr.with_flags(UNSIGNALED) });
    }
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([2, 5], 0));
    assert_eq!(b.recv_outcomes(), all_ok(0..6, 0), "a receive request always completes");
}

#[test]
fn a_queue_pair_can_signal_everything() {
    let (mut pair, a, b) = Pair::connected(Options { sq_sig_all: true, ..Options::default() });
    for id in 0..3 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()).with_flags(UNSIGNALED));
    }
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok(0..3, 0));
}

#[test]
fn unsignaled_requests_free_their_places() {
    let mut pair = Pair::new();
    let mut options = Options::default();
    options.caps.max_send_wr = 2;
    let (a, _b) = pair.connect(options);
    let far = pair.b.buffer(8);
    for id in 0..100 {
        pair.post_send(
            &a,
            &SendWr::write(id, far.remote(0), Data::inline(&[1; 8])).with_flags(UNSIGNALED),
        );
        pair.run();
    }
    assert_eq!(a.sent(), []);
}

#[test]
fn what_a_completion_says() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let (near, far) = (pair.a.buffer(100), pair.b.buffer(100));
    pair.post_recvs(&b, 11..=13, &[far.all()]);
    let imm = [0xDE, 0xAD, 0xBE, 0xEF];
    pair.post_send(&a, &SendWr::send(1, near.sge(0, 30)));
    pair.post_send(&a, &SendWr::send(2, near.sge(0, 40)).with_immediate(imm));
    pair.post_send(&a, &SendWr::write(3, far.remote(0), near.sge(0, 50)));
    pair.post_send(&a, &SendWr::write(4, far.remote(0), near.sge(0, 60)).with_immediate(imm));
    pair.post_send(&a, &SendWr::read(5, far.remote(0), near.sge(0, 70)));
    pair.run();
    let first = pair.trace.from(Side::A).map(|record| record.time).min().unwrap();
    let last = pair.now;
    let timed = |wcs: Vec<Wc>| -> Vec<Wc> {
        assert!(wcs.is_sorted_by_key(|wc| wc.timestamp));
        assert!(
            wcs.iter().all(|wc| wc.timestamp > first && wc.timestamp <= last),
            "completed after it was sent"
        );
        wcs.into_iter().map(|wc| Wc { timestamp: Instant::ZERO, ..wc }).collect()
    };
    let ok = |qpn, wr_id, opcode, byte_len, immediate: Option<[u8; 4]>| {
        let ok = WcOk { immediate: immediate.map(Immediate), ..WcOk::new(opcode, byte_len) };
        Wc { wr_id, qpn, timestamp: Instant::ZERO, result: Ok(ok) }
    };
    let sent = [
        (1, WcOpcode::Send, 0),
        (2, WcOpcode::Send, 0),
        (3, WcOpcode::RdmaWrite, 0),
        (4, WcOpcode::RdmaWrite, 0),
        (5, WcOpcode::RdmaRead, 70),
    ];
    assert_eq!(
        timed(a.sent()),
        sent.map(|(id, opcode, byte_len)| ok(a.qpn, id, opcode, byte_len, None))
    );
    let received = [
        ok(b.qpn, 11, WcOpcode::Recv, 30, None),
        ok(b.qpn, 12, WcOpcode::Recv, 40, Some(imm)),
        ok(b.qpn, 13, WcOpcode::RecvRdmaWithImm, 60, Some(imm)),
    ];
    assert_eq!(timed(b.received()), received);
}

#[test]
fn solicited_events() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let far = pair.b.buffer(8);
    pair.post_recvs(&b, 0..8, &[]);
    let wakes = |pair: &mut Pair, wr: &SendWr| {
        b.recv_cq.req_notify(NotifyKind::Solicited);
        pair.post_send(&a, wr);
        pair.run();
        let events = pair.events(Side::B);
        assert!(events.is_empty() || events == [Event::Completion(b.recv_cq.id())]);
        !events.is_empty()
    };
    let solicited = SendFlags::SIGNALED | SendFlags::SOLICITED;
    assert!(!wakes(&mut pair, &SendWr::send(1, Data::empty())));
    assert!(wakes(&mut pair, &SendWr::send(2, Data::empty()).with_flags(solicited)));
    let write = SendWr::write(3, far.remote(0), Data::empty()).with_flags(solicited);
    assert!(!wakes(&mut pair, &write), "a WRITE without immediate completes nothing");
    assert!(wakes(&mut pair, &write.with_immediate([0; 4])));
    let solicited: Vec<bool> =
        pair.trace.from(Side::A).map(|record| record.headers.bth().solicited).collect();
    assert_eq!(solicited, [false, true, false, true]);
    pair.b.adapter.to_error(pair.now, b.qpn).unwrap();
    pair.b.drain_events();
    assert_eq!(pair.events(Side::B), [], "the last event has disarmed the queue");
}

#[test]
fn the_last_packet_is_solicited() {
    let mut half =
        Half::new(Options { mtu: roce_transport::addr::Mtu::B256, ..Options::default() });
    let from = half.buffer(600);
    half.post_send(&SendWr::send(1, from.all()).with_flags(SendFlags::SOLICITED));
    assert_eq!(
        half.take().iter().map(|packet| packet.solicited).collect::<Vec<_>>(),
        [false, false, true]
    );
}

#[test]
fn an_event_for_the_next_completion() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    pair.post_recvs(&b, 0..3, &[]);
    a.send_cq.req_notify(NotifyKind::Next);
    b.recv_cq.req_notify(NotifyKind::Next);
    for id in 0..3 {
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.run();
    assert_eq!(
        pair.events(Side::A),
        [Event::Completion(a.send_cq.id())],
        "one event, however many completions"
    );
    assert_eq!(pair.events(Side::B), [Event::Completion(b.recv_cq.id())]);
}

#[test]
fn overrun() {
    let mut pair = Pair::new();
    let options = Options { cqe: 2, ..Options::default() };
    let (a, b) = pair.connect_with(Options::default(), options);
    let other = pair.b.qp_with(Side::B, QpType::Rc, &options, b.send_cq.clone(), b.recv_cq.clone());
    let elsewhere = pair.b.qp(Side::B, QpType::Rc, &options);
    for qp in [&other, &elsewhere] {
        pair.b.enter_init(qp.qpn, &options);
    }
    for id in 0..4 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.allow(roce_transport::event::DropReason::QpState);
    pair.run();
    assert!(b.recv_cq.has_overrun());
    assert_eq!(b.recv_outcomes(), all_ok(0..2, 0));
    let mut events = pair.events(Side::B);
    assert_eq!(events.remove(0), Event::CqError(b.recv_cq.id()));
    assert_eq!(events, [Event::QpFatal(b.qpn), Event::QpFatal(other.qpn)]);
    assert_eq!(
        (pair.state(&b), pair.state(&other), pair.state(&elsewhere)),
        (State::Err, State::Err, State::Init)
    );
}

#[test]
fn a_queue_in_use_cannot_be_destroyed() {
    let mut half = Half::reset(Options::default());
    let adapter = &mut half.node.adapter;
    let (send_cq, recv_cq) = (half.qp.send_cq.id(), half.qp.recv_cq.id());
    assert_eq!(adapter.destroy_cq(send_cq), Err(ObjectError::InUse));
    adapter.destroy_qp(half.qp.qpn).unwrap();
    assert_eq!(adapter.destroy_cq(send_cq), Ok(()));
    assert_eq!(adapter.destroy_cq(recv_cq), Ok(()));
    assert_eq!(adapter.destroy_cq(recv_cq), Err(ObjectError::Unknown));
}

fn with_one_queue() -> Half {
    let mut half = Half::reset(Options::default());
    let cq = half.node.adapter.create_cq(8).unwrap();
    let qp = half.node.qp_with(Side::A, QpType::Rc, &Options::default(), cq.clone(), cq);
    half.connect(qp, &Options::default());
    half
}

fn completed(half: &Half) -> Vec<u64> {
    half.qp.sent().iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn one_queue_for_both() {
    let mut half = with_one_queue();
    half.post_recv(&RecvWr::new(1, []));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.take();
    half.send(&pkt(Op::SendOnly, 0x200));
    half.send(&ack(0x100, 1));
    assert_eq!(completed(&half), [1, 2]);
}

/// The acknowledgement is last in the run but handled first: programs rely on the order.
#[test]
fn a_sent_request_completes_before_its_response() {
    let mut half = with_one_queue();
    let buffer = half.buffer(8);
    half.post_recv(&RecvWr::new(1, [buffer.all()]));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.take();
    half.send_run(&[pkt(Op::SendOnly, 0x200).payload(b"answered"), ack(0x100, 1)]);
    assert_eq!(completed(&half), [2, 1]);
}

/// An acknowledgement before a READ response would imply its loss.
#[test]
fn what_was_sent_completes_in_its_order() {
    let mut half = with_one_queue();
    let buffer = half.buffer(64);
    half.post_send(&SendWr::read(1, buffer.remote(0), buffer.all()));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.take();
    let data = pkt(Op::ReadResponseOnly, 0x100).aeth(Syndrome::ACK, 1).payload(&[7; 64]);
    half.send_run(&[data, ack(0x101, 2)]);
    assert_eq!(completed(&half), [1, 2]);
}
