//! Unreliable connections (9.8.2).

use roce_transport::{
    addr::Mtu,
    event::DropReason,
    qp::State,
    wire::Service,
    work::{Data, RecvWr, SendWr, Sge, WcStatus},
};

use crate::common::{Buffer, End, Options, Pair, Side, all_ok, pattern};

const MTU: usize = 256;

fn pair() -> (Pair, End, End) {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_unreliably(Options { mtu: Mtu::B256, ..Options::default() });
    (pair, a, b)
}

/// Five three-packet messages with consecutive buffers.
fn five_messages(pair: &mut Pair, a: &End, b: &End) -> Buffer {
    let (near, far) = (pair.a.buffer(5 * 3 * MTU), pair.b.buffer(5 * 3 * MTU));
    for id in 0..5u8 {
        near.put(usize::from(id) * 3 * MTU, &pattern(id, 3 * MTU));
        pair.post_recv(b, &RecvWr::new(id.into(), [far.sge(usize::from(id) * 3 * MTU, 3 * MTU)]));
        pair.post_send(a, &SendWr::send(id.into(), near.sge(usize::from(id) * 3 * MTU, 3 * MTU)));
    }
    far
}

#[test]
fn messages_arrive_and_get_no_response() {
    let (mut pair, a, b) = pair();
    let far = five_messages(&mut pair, &a, &b);
    pair.run();
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (all_ok(0..5, 0), all_ok(0..5, 768)));
    assert_eq!(far.part(0, 768), pattern(0, 768));
    assert_eq!(pair.trace.from(Side::B).count(), 0);
    assert!(pair.trace.from(Side::A).all(|record| {
        let bth = record.headers.bth();
        !bth.ack_req && bth.opcode.service() == Service::Uc
    }));
    assert_eq!(pair.a.adapter.poll_timeout(), None);
}

/// There is no window.
#[test]
fn a_long_message() {
    let (mut pair, a, b) = pair();
    let (near, far) = (pair.a.buffer(600 * MTU).fill(1), pair.b.buffer(600 * MTU));
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send(1, near.all()));
    pair.post_send(&a, &SendWr::write(2, far.remote(0), near.all()));
    pair.run();
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (all_ok([1, 2], 0), all_ok([1], 600 * 256)));
    assert_eq!(far.bytes(), near.bytes());
}

/// The receive serves the next message.
#[test]
fn a_message_with_a_gap_is_gone() {
    for lost in 0..3 {
        let (mut pair, a, b) = pair();
        pair.allow(DropReason::MessageBroken);
        let rule = pair.fault(&format!("drop psn {} once", 0x100 + 3 + lost));
        let far = five_messages(&mut pair, &a, &b);
        pair.run();
        pair.assert_hit(rule);
        assert_eq!(a.send_outcomes(), all_ok(0..5, 0));
        assert_eq!(b.recv_outcomes(), all_ok(0..4, 768));
        for (slot, message) in [0u8, 2, 3, 4].into_iter().enumerate() {
            assert_eq!(far.part(slot * 768, 768), pattern(message, 768));
        }
    }
}

#[test]
fn two_halves_do_not_make_a_message() {
    let (mut pair, a, b) = pair();
    pair.allow(DropReason::MessageBroken);
    pair.fault("drop psn 0x102..0x103");
    five_messages(&mut pair, &a, &b);
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok(0..3, 768));
}

#[test]
fn a_duplicate_in_a_message_breaks_it() {
    let (mut pair, a, b) = pair();
    pair.allow(DropReason::MessageBroken);
    pair.fault("duplicate psn 0x104 once");
    five_messages(&mut pair, &a, &b);
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok(0..4, 768));
}

#[test]
fn without_a_receive_request_a_message_is_gone() {
    let (mut pair, a, b) = pair();
    pair.allow_all(&[DropReason::NoReceiveRequest, DropReason::MessageBroken]);
    let near = pair.a.buffer(768);
    let far = pair.b.buffer(768);
    pair.post_send(&a, &SendWr::send(1, near.all()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send(2, near.all()).with_immediate([1; 4]));
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 768));
}

#[test]
fn writes_with_and_without_immediate() {
    let (mut pair, a, b) = pair();
    let (near, far) = (pair.a.buffer(1000).fill(1), pair.b.buffer(1000));
    pair.post_recv(&b, &RecvWr::new(9, []));
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 500)));
    pair.post_send(
        &a,
        &SendWr::write(2, far.remote(500), near.sge(500, 500)).with_immediate([7; 4]),
    );
    pair.run();
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (all_ok([1, 2], 0), all_ok([9], 500)));
    assert_eq!(far.bytes(), near.bytes());
}

#[test]
fn a_message_longer_than_the_buffer_is_gone() {
    for length in [101, 700] {
        let (mut pair, a, b) = pair();
        pair.allow_all(&[DropReason::RequestRefused, DropReason::MessageBroken]);
        let (near, far) = (pair.a.buffer(700).fill(1), pair.b.buffer(700));
        pair.post_recv(&b, &RecvWr::new(9, [far.sge(0, 100)]));
        pair.post_send(&a, &SendWr::send(1, near.sge(0, length)));
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([1], 0));
        assert_eq!((b.recv_outcomes(), pair.state(&b)), (vec![], State::Rts));
        assert_eq!(far.part(100, 600), [0; 600], "nothing is written past the end");
        assert_eq!(pair.dropped(DropReason::RequestRefused), 1);
        pair.post_send(&a, &SendWr::send(2, near.sge(0, 100)));
        pair.run();
        assert_eq!(b.recv_outcomes(), all_ok([9], 100));
    }
}

#[test]
fn a_refused_write_is_only_counted() {
    let (mut pair, a, b) = pair();
    pair.allow_all(&[DropReason::RequestRefused, DropReason::MessageBroken]);
    let (near, far) = (pair.a.buffer(768).fill(1), pair.b.buffer(700));
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    assert_eq!((pair.state(&a), pair.state(&b)), (State::Rts, State::Rts));
    assert_eq!(far.bytes(), [0; 700]);
    assert_eq!(pair.dropped(DropReason::RequestRefused), 1);
}

#[test]
fn a_bad_local_buffer_ends_sending() {
    let (mut pair, a, _b) = pair();
    let bad = Sge { lkey: roce_transport::mem::LKey(0xBAD), address: 0, length: 8 };
    pair.post_send(&a, &SendWr::send(1, bad));
    pair.post_send(&a, &SendWr::send(2, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::LocProtErr)), (2, Err(WcStatus::WrFlushErr))]);
    assert_eq!(pair.state(&a), State::Sqe);
}

#[test]
fn reads_and_atomics_do_not_exist() {
    for op in ["read", "fetch_add"] {
        let (mut pair, a, _b) = pair();
        let near = pair.a.buffer(8);
        let wr = match op {
            "read" => SendWr::read(1, near.remote(0), near.all()),
            _ => SendWr::fetch_add(1, near.remote(0), 1, near.all()),
        };
        pair.post_send(&a, &wr);
        pair.post_send(&a, &SendWr::send(2, Data::empty()));
        pair.run();
        let outcomes = [(1, Err(WcStatus::LocQpOpErr)), (2, Err(WcStatus::WrFlushErr))];
        assert_eq!(a.send_outcomes(), outcomes, "{op}");
        assert_eq!((pair.state(&a), pair.trace.records.len()), (State::Sqe, 0), "{op}");
    }
}
