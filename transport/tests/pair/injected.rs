//! Injected failures look real (10.3.1, 10.10.2).

use roce_transport::{
    event::{DropReason, Event},
    qp::{Completing, CompletionFaults, QpType, Queue, State},
    work::{Cause, Data, RecvWr, SendFlags, SendWr, WcOpcode, WcStatus},
};

use crate::common::{End, Options, Outcome, Pair, Side, all_ok};

/// Fails a queue's n-th request.
#[derive(Debug)]
struct Nth(Queue, u32, WcStatus);

impl CompletionFaults for Nth {
    fn judge(&mut self, completing: &Completing) -> Option<WcStatus> {
        let Self(queue, left, status) = self;
        if completing.queue != *queue || !completing.may_be(*status) || *left == 0 {
            return None;
        }
        *left -= 1;
        (*left == 0).then_some(*status)
    }
}

fn with_fault(pair: &mut Pair, side: Side, fault: Nth) {
    let node = if matches!(side, Side::A) { &mut pair.a } else { &mut pair.b };
    node.adapter.set_completion_faults(Some(Box::new(fault)));
    pair.allow(DropReason::QpState);
}

fn failed(id: u64, status: WcStatus) -> Outcome {
    (id, Err(status))
}

fn five(pair: &mut Pair, a: &End, b: &End) {
    pair.post_recvs(b, 1..=5, &[]);
    for id in 1..=5 {
        pair.post_send(a, &SendWr::send(id, Data::empty()));
    }
    pair.run();
}

#[test]
fn a_send_fails_and_what_is_behind_is_flushed_in_order() {
    for status in [WcStatus::RetryExcErr, WcStatus::RemOpErr, WcStatus::WrFlushErr] {
        let (mut pair, a, b) = Pair::connected(Options::default());
        pair.post_recv(&a, &RecvWr::new(9, []));
        with_fault(&mut pair, Side::A, Nth(Queue::Send, 3, status));
        five(&mut pair, &a, &b);
        let mut expected = all_ok([1, 2], 0);
        expected.push(failed(3, status));
        expected.extend([4, 5].map(|id| failed(id, WcStatus::WrFlushErr)));
        let sent = a.sent();
        assert_eq!(sent[2].result.unwrap_err().cause, Cause::Injected);
        assert_eq!(crate::common::outcomes(sent), expected);
        assert_eq!(a.recv_outcomes(), [failed(9, WcStatus::WrFlushErr)]);
        assert_eq!(pair.state(&a), State::Err);
        assert_eq!(pair.events(Side::A), [], "a completion tells");
    }
}

#[test]
fn an_unsignaled_send_that_fails_completes() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    with_fault(&mut pair, Side::A, Nth(Queue::Send, 1, WcStatus::LocProtErr));
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_send(&a, &SendWr::send(1, Data::empty()).with_flags(SendFlags::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), [failed(1, WcStatus::LocProtErr)]);
}

#[test]
fn a_receive_fails_and_the_queue_pair_with_it() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    with_fault(&mut pair, Side::B, Nth(Queue::Receive, 2, WcStatus::LocLenErr));
    five(&mut pair, &a, &b);
    let mut expected = all_ok([1], 0);
    expected.push(failed(2, WcStatus::LocLenErr));
    expected.extend([3, 4, 5].map(|id| failed(id, WcStatus::WrFlushErr)));
    assert_eq!(b.recv_outcomes(), expected);
    assert_eq!(pair.state(&b), State::Err);
    // as from ERR
    let outcomes = a.send_outcomes();
    assert!(outcomes.iter().any(|(_, outcome)| outcome.is_err()), "{outcomes:?}");
}

/// UD enters SQE.
#[test]
fn a_datagram_that_fails_stops_the_send_queue_alone() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let to = pair.b.destination(b.qpn);
    with_fault(&mut pair, Side::A, Nth(Queue::Send, 1, WcStatus::LocQpOpErr));
    pair.post_recv(&a, &RecvWr::new(9, []));
    let far = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(8, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), [failed(1, WcStatus::LocQpOpErr)]);
    assert_eq!((pair.state(&a), a.recv_outcomes()), (State::Sqe, vec![]));
}

#[test]
fn a_queue_pair_fails_with_an_event() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    pair.allow(DropReason::QpState);
    pair.post_recv(&a, &RecvWr::new(1, []));
    let now = pair.now;
    assert_eq!(pair.a.adapter.fail_qp(now, Some(b.qpn)), usize::from(a.qpn == b.qpn));
    assert_eq!(pair.a.adapter.fail_qp(now, Some(a.qpn)), 1);
    assert_eq!(pair.a.adapter.fail_qp(now, None), 0, "it has failed already");
    pair.run();
    assert_eq!(a.recv_outcomes(), [failed(1, WcStatus::WrFlushErr)]);
    assert_eq!(pair.state(&a), State::Err);
    assert_eq!(pair.events(Side::A), [Event::QpFatal(a.qpn)]);
}

#[test]
fn only_what_could_happen_does() {
    let of = |qp_type, queue, opcode, needs_receive| Completing {
        qpn: Default::default(),
        qp_type,
        queue,
        opcode,
        needs_receive,
    };
    let send = of(QpType::Rc, Queue::Send, WcOpcode::Send, true);
    let write = of(QpType::Rc, Queue::Send, WcOpcode::RdmaWrite, false);
    let bind = of(QpType::Rc, Queue::Send, WcOpcode::BindMw, false);
    let datagram = of(QpType::Ud, Queue::Send, WcOpcode::Send, true);
    let receive = of(QpType::Rc, Queue::Receive, WcOpcode::Recv, false);
    for (status, expected) in [
        (WcStatus::LocLenErr, [true, true, false, true, true]),
        (WcStatus::LocQpOpErr, [true, true, true, true, true]),
        (WcStatus::WrFlushErr, [true, true, true, true, true]),
        (WcStatus::MwBindErr, [false, false, true, false, false]),
        (WcStatus::LocAccessErr, [false, false, false, false, true]),
        (WcStatus::RemInvReqErr, [true, true, false, false, true]),
        (WcStatus::RemAccessErr, [false, true, false, false, false]),
        (WcStatus::RetryExcErr, [true, true, false, false, false]),
        (WcStatus::RnrRetryExcErr, [true, false, false, false, false]),
    ] {
        let may = [send, write, bind, datagram, receive].map(|request| request.may_be(status));
        assert_eq!(may, expected, "{status:?}");
    }
}
