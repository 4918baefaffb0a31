use std::time::Duration;

use roce_transport::{
    cm::{CmState, ConnEvent, Message, RejectReason},
    event::DropReason,
    work::{RecvWr, SendWr},
};

use super::{Talk, hand, rejection};
use crate::common::Side;

const LATE: [DropReason; 2] = [DropReason::CmWrongState, DropReason::CmUnknownConnection];

fn life(side: Side, fault: &str) -> Talk {
    let mut talk = Talk::new();
    talk.pair.allow_all(&LATE);
    let rule = talk.pair.fault_from(side, fault);
    let (a, _) = talk.call();
    talk.pair.run_for(Duration::from_secs(3));
    let (b, _) = talk.requests()[0];
    talk.accept(b);
    talk.pair.run_for(Duration::from_secs(3));
    assert!(
        matches!(talk.take(Side::A)[..], [ConnEvent::Established { conn, .. }] if conn == a),
        "{side:?} {fault}"
    );
    assert!(
        matches!(talk.take(Side::B)[..], [ConnEvent::Established { conn, .. }] if conn == b),
        "{side:?} {fault}"
    );
    talk.disconnect(Side::A, a);
    talk.pair.run_for(Duration::from_secs(3));
    assert_eq!(talk.take(Side::B), [ConnEvent::Disconnected(b)], "{side:?} {fault}");
    talk.disconnect(Side::B, b);
    talk.pair.run();
    assert_eq!(
        talk.take(Side::A),
        [ConnEvent::Disconnected(a), ConnEvent::TimeWaitExit(a)],
        "{side:?} {fault}"
    );
    assert_eq!(talk.take(Side::B), [ConnEvent::TimeWaitExit(b)], "{side:?} {fault}");
    talk.pair.assert_hit(rule);
    talk.assert_gone();
    talk
}

#[test]
fn each_message_lost_once() {
    for (side, messages) in [(Side::A, 3), (Side::B, 2)] {
        for n in 1..=messages {
            let talk = life(side, &format!("drop qp 1 nth {n}"));
            assert!(talk.pair.trace.records.len() > 5);
        }
    }
}

#[test]
fn each_message_twice() {
    for (side, messages) in [(Side::A, 3), (Side::B, 2)] {
        for n in 1..=messages {
            life(side, &format!("duplicate qp 1 nth {n}"));
        }
    }
}

#[test]
fn each_message_late() {
    for (side, messages) in [(Side::A, 3), (Side::B, 2)] {
        for n in 1..=messages {
            life(side, &format!("delay 1500ms qp 1 nth {n}"));
        }
    }
}

/// An MRA makes the peer wait.
#[test]
fn a_program_that_needs_a_minute() {
    let mut talk = Talk::new();
    let (a, _) = talk.call();
    talk.pair.run_for(Duration::from_secs(60));
    let (b, _) = talk.requests()[0];
    assert_eq!(talk.pair.a.adapter.cm().state(a), Some(CmState::MraReqRcvd));
    assert_eq!(
        talk.pair.trace.records.len(),
        3,
        "the request, its repeat, and the acknowledgement of its receipt"
    );
    talk.accept(b);
    talk.deliver_all();
    assert!(matches!(talk.take(Side::A)[..], [ConnEvent::Established { .. }]));
    assert!(matches!(talk.take(Side::B)[..], [ConnEvent::Established { .. }]));
}

#[test]
fn a_program_that_never_responds() {
    let mut talk = Talk::new();
    let (a, _) = talk.call();
    talk.pair.run();
    assert_eq!(talk.take(Side::A), [ConnEvent::Unreachable(a)]);
    let events = talk.take(Side::B);
    let [ConnEvent::Request { conn, .. }, rejected] = &events[..] else { panic!("{events:?}") };
    assert_eq!(rejection(rejected).reason, RejectReason::TIMEOUT);
    assert_eq!(talk.pair.b.adapter.cm().state(*conn), None);
    talk.assert_gone();
}

/// The REJ is lost.
#[test]
fn a_program_that_responds_too_late() {
    let mut talk = Talk::new();
    talk.pair.fault_from(Side::A, "drop qp 1 nth 17");
    let (a, _) = talk.call();
    talk.pair.run();
    assert_eq!(talk.take(Side::A), [ConnEvent::Unreachable(a)]);
    let (b, _) = talk.requests()[0];
    assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::ReqRcvd));
    // acceptance fails, with an event
    talk.accept(b);
    talk.deliver_all();
    assert_eq!(rejection(&talk.take(Side::B)[0]).reason, RejectReason::INVALID_COMM_ID);
    talk.pair.run();
    talk.assert_gone();
}

/// The first packet precedes the RTU, and the program reports it.
#[test]
fn notified_of_traffic() {
    let mut talk = Talk::new();
    talk.pair.fault_from(Side::A, "drop qp 1 nth 2");
    let (_, b, _) = talk.requested();
    talk.accept(b);
    talk.deliver_all();
    assert_eq!(talk.take(Side::B), []);
    talk.pair.b.adapter.cm_mut().notify(b).unwrap();
    assert!(
        matches!(talk.take(Side::B)[..], [ConnEvent::Established { conn, private_data: None, .. }] if conn == b)
    );
    assert_eq!(talk.pair.b.adapter.cm_mut().notify(b), Ok(()));
    talk.deliver_all();
    assert_eq!(talk.take(Side::B), []);
    assert_eq!(hand::sent(&mut talk.pair, Side::B).len(), 0);
}

/// The adapter checks the queue pair before it retransmits the REP.
#[test]
fn traffic_confirms() {
    for speaks in [false, true] {
        let mut talk = Talk::new();
        talk.pair.fault_from(Side::A, "drop qp 1 nth 2");
        let (_, b, a_qp) = talk.requested();
        let b_qp = talk.accept(b);
        talk.deliver_all();
        let (near, far) = (talk.pair.a.buffer(8), talk.pair.b.buffer(8));
        if speaks {
            talk.pair.post_recv(&b_qp, &RecvWr::new(1, [far.all()]));
            talk.pair.post_send(&a_qp, &SendWr::send(2, near.all()));
        }
        talk.pair.run_for(Duration::from_millis(1100));
        let [ConnEvent::Established { conn, private_data, .. }] = &talk.take(Side::B)[..] else {
            panic!()
        };
        assert_eq!((*conn, private_data.is_none()), (b, speaks));
        let reps = talk.pair.trace.from(Side::B).filter_map(|record| hand::mad_of(&record.bytes));
        let reps = reps.filter(|mad| matches!(mad.message, Message::Rep(_))).count();
        assert_eq!(reps, if speaks { 1 } else { 2 });
    }
}

#[test]
fn repeats_are_alike() {
    let mut talk = Talk::new();
    talk.pair.fault_from(Side::B, "drop qp 1 times 4");
    let (_, b, _) = talk.requested();
    talk.accept(b);
    talk.pair.allow_all(&LATE);
    talk.pair.run();
    let reps: Vec<_> = talk
        .pair
        .trace
        .from(Side::B)
        .filter_map(|record| hand::mad_of(&record.bytes))
        .filter(|mad| matches!(mad.message, Message::Rep(_)))
        .collect();
    assert!(reps.len() >= 2 && reps.windows(2).all(|pair| pair[0] == pair[1]), "{reps:?}");
}

/// The active program moves its queue pair.
#[test]
fn a_caller_that_needs_a_minute() {
    let mut talk = Talk::new();
    let end = talk.qp(Side::A);
    let a = talk.call_unmanaged(&end);
    talk.deliver_all();
    let (b, _) = talk.requests()[0];
    talk.accept(b);
    talk.pair.run_for(Duration::from_secs(60));
    assert!(matches!(talk.take(Side::A)[..], [ConnEvent::Reply { conn, .. }] if conn == a));
    assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::MraRepRcvd));
    assert_eq!(
        talk.pair.trace.records.len(),
        4,
        "request, reply, its repeat, and the acknowledgement of its receipt"
    );
    talk.pair.a.adapter.cm_establish(a, b"").unwrap();
    talk.deliver_all();
    assert!(matches!(talk.take(Side::B)[..], [ConnEvent::Established { conn, .. }] if conn == b));
}
