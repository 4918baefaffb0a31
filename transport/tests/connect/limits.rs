use std::time::Duration;

use roce_transport::{
    addr::Qpn,
    cm::{CmMad, CmState, ConnEvent, ConnId, Connect, Message},
    event::{Disposition, DropReason},
    time::Instant,
};

use super::{Talk, connect, hand, subject::Subject};
use crate::common::Side;

/// Number of B's ended time waits.
fn ended(talk: &mut Talk, ack_timeout: u8) -> usize {
    let (end, to) = (talk.qp(Side::A), talk.pair.b.ip);
    let call = Connect { ack_timeout, ..connect(&end, to) };
    let a = talk.pair.a.adapter.cm_connect(talk.pair.now, &call).unwrap();
    talk.deliver_all();
    let mut events = talk.take(Side::B);
    let request = |event: &ConnEvent| match event {
        ConnEvent::Request { conn, .. } => Some(*conn),
        _ => None,
    };
    let b = events.iter().find_map(request).unwrap();
    talk.accept(b);
    talk.deliver_all();
    talk.disconnect(Side::A, a);
    talk.deliver_all();
    talk.disconnect(Side::B, b);
    talk.deliver_all();
    talk.take(Side::A);
    events.extend(talk.take(Side::B));
    events.iter().filter(|event| matches!(event, ConnEvent::TimeWaitExit(_))).count()
}

/// Despite an acknowledge timeout of 2.4 hours.
#[test]
fn a_time_wait_ends_in_seconds() {
    let mut talk = Talk::new();
    for _ in 0..200 {
        ended(&mut talk, 31);
    }
    assert!(talk.pair.b.adapter.cm().count() > 0);
    talk.pair.run_for(Duration::from_millis(4300));
    talk.assert_gone();
}

#[test]
fn time_waits_are_not_counted() {
    let mut talk = Talk::configured(Side::B, |cm| cm.max_connections = 3);
    for n in 1..=10 {
        ended(&mut talk, 20);
        assert_eq!(talk.pair.b.adapter.cm().count(), n.min(3), "time waits");
    }
    for _ in 0..3 {
        talk.call();
        talk.deliver_all();
    }
    assert_eq!((talk.requests().len(), talk.pair.b.adapter.cm().count()), (3, 6));
    // further requests are refused
    talk.pair.allow(DropReason::CmBacklog);
    talk.call();
    talk.pair.run_for(Duration::from_millis(4300));
    let events = talk.take(Side::B);
    let over = |event: &ConnEvent| matches!(event, ConnEvent::TimeWaitExit(_));
    assert!(events.len() == 3 && events.iter().all(over), "{events:?}");
}

/// The time wait with the least time left makes room, with an event.
#[test]
fn a_time_wait_that_ends_early() {
    let mut talk = Talk::configured(Side::B, |cm| cm.max_connections = 2);
    assert_eq!([20, 18, 20].map(|ack_timeout| ended(&mut talk, ack_timeout)), [0, 0, 1]);
    assert_eq!(talk.pair.b.adapter.cm().count(), 2);
    talk.pair.run_for(Duration::from_secs(2)); // twice code 18
    assert_eq!((talk.pair.b.adapter.cm().count(), talk.take(Side::B)), (2, vec![]));
}

#[test]
fn more_connections_than_allowed() {
    let mut talk = Talk::configured(Side::B, |cm| cm.max_connections = 3);
    talk.pair.allow(DropReason::CmBacklog);
    for _ in 0..5 {
        talk.call();
    }
    talk.deliver_all();
    assert_eq!((talk.requests().len(), talk.pair.b.adapter.cm().count()), (3, 3));
}

#[test]
fn more_connections_than_one_peer_may_have() {
    let mut talk = Talk::configured(Side::B, |cm| cm.max_per_peer = 2);
    talk.call();
    let good = hand::sent(&mut talk.pair, Side::A).remove(0);
    let request = |n: u32| {
        hand::change_req(good.clone(), |req| {
            (req.local_id, req.local_qpn) = (n, Qpn::new(n));
        })
    };
    let refused = Disposition::Dropped(DropReason::CmBacklog);
    assert_eq!(hand::deliver(&mut talk.pair, Side::B, &request(1)), Disposition::Executed);
    assert_eq!(hand::deliver(&mut talk.pair, Side::B, &request(2)), Disposition::Executed);
    assert_eq!(hand::deliver(&mut talk.pair, Side::B, &request(3)), refused);
    assert_eq!(
        hand::deliver_from(&mut talk.pair, Side::B, hand::OTHER_HOST, &request(1)),
        Disposition::Executed
    );
    // accepted connections count until they end
    let waiting = talk.requests();
    talk.accept(waiting[0].0);
    assert_eq!(hand::deliver(&mut talk.pair, Side::B, &request(3)), refused);
    talk.destroy(Side::B, waiting[1].0);
    assert_eq!(hand::deliver(&mut talk.pair, Side::B, &request(3)), Disposition::Executed);
}

fn sent_until_quiet(talk: &mut Talk) -> Vec<&'static str> {
    let mut names = Vec::new();
    loop {
        let sent = hand::sent(&mut talk.pair, Side::B);
        names.extend(sent.iter().map(|mad| mad.message.name()));
        let Some(at) = talk.pair.b.adapter.poll_timeout() else { return names };
        talk.pair.now = at;
        talk.pair.b.adapter.handle_timeout(at);
    }
}

/// The REQ's address is unproven.
#[test]
fn one_request_leads_to_three_messages() {
    type Then = fn(&mut Talk, ConnId);
    let cases: [(&[&str], Then); 5] = [
        (&["REP", "REP", "REJ"], |_, _| {}),
        (&["REP", "DREQ", "DREQ"], |talk, b| talk.destroy(Side::B, b)),
        (&["REP", "REP", "DREQ"], |talk, b| {
            talk.pair.now = talk.pair.now.plus(Duration::from_secs(10));
            let now = talk.pair.now;
            talk.pair.b.adapter.handle_timeout(now);
            talk.disconnect(Side::B, b);
        }),
        // each retransmitted REQ has its response
        (&["REP", "REP", "REP", "REP", "REJ"], |talk, _| repeat(talk, 2)),
        (&["REP", "REP", "REP", "REP", "DREQ", "DREQ"], |talk, b| {
            repeat(talk, 3);
            talk.destroy(Side::B, b);
        }),
    ];
    for (expected, then) in cases {
        let mut talk = Talk::configured(Side::A, |_| {});
        request(&mut talk);
        let (b, _) = talk.requests()[0];
        talk.accept(b);
        then(&mut talk, b);
        assert_eq!(sent_until_quiet(&mut talk), expected);
        talk.assert_gone();
    }
}

#[test]
fn a_connection_that_nobody_uses_ends_in_seconds() {
    let mut talk = Talk::configured(Side::A, |_| {});
    request(&mut talk);
    let (b, _) = talk.requests()[0];
    talk.accept(b);
    let start = talk.pair.now;
    sent_until_quiet(&mut talk);
    let lasted = talk.pair.now.since(start);
    assert_eq!(lasted.as_secs(), 17, "{lasted:?}");
    talk.assert_gone();
}

/// A REQ with a forged address.
fn request(talk: &mut Talk) {
    let (a, _) = talk.call();
    let req = hand::sent(&mut talk.pair, Side::A).remove(0);
    talk.destroy(Side::A, a);
    hand::sent(&mut talk.pair, Side::A);
    assert_eq!(
        hand::deliver_from(&mut talk.pair, Side::B, hand::OTHER_HOST, &req),
        Disposition::Executed
    );
}

fn repeat(talk: &mut Talk, times: usize) {
    let conn = talk.pair.b.adapter.cm().count();
    for _ in 0..times {
        // restart with the same seed
        super::configure(&mut talk.pair.a, |_| {});
        request(talk);
    }
    assert_eq!(talk.pair.b.adapter.cm().count(), conn);
}

/// An MRA proves the address: all retransmissions happen.
#[test]
fn a_sender_that_has_responded_gets_every_repeat() {
    let mut subject = Subject::in_state("MraRepRcvd");
    assert_eq!(sent_until_quiet(&mut subject.talk), [["REP"; 15].as_slice(), &["REJ"]].concat());
}

fn next_timeout(subject: &mut Subject) -> Instant {
    subject.talk.pair.node(subject.side).adapter.poll_timeout().unwrap()
}

/// Repeated MRAs of 2.4 hours extend each response by 70 s only.
#[test]
fn a_response_has_to_come_within_a_minute() {
    for (state, waits, mra) in [
        ("ReqSent", CmState::MraReqRcvd, "MRA of REQ"),
        ("RepSent", CmState::MraRepRcvd, "MRA of REP"),
    ] {
        let mut subject = Subject::in_state(state);
        let Message::Mra(mut mra) = subject.message(mra) else { unreachable!() };
        mra.service_timeout = 31;
        let mad = CmMad::new(5, Message::Mra(mra));
        let deliver = |subject: &mut Subject| {
            let disposition = hand::deliver(&mut subject.talk.pair, subject.side, &mad);
            assert_eq!(disposition, Disposition::Executed);
            assert_eq!(subject.state(), Some(waits));
        };
        let start = subject.talk.pair.now;
        deliver(&mut subject);
        let deadline = next_timeout(&mut subject);
        assert_eq!(deadline.since(start), Duration::from_nanos((4096 << 24) + (4096 << 18)));
        subject.talk.pair.now = start.plus(Duration::from_secs(60));
        deliver(&mut subject);
        assert_eq!(next_timeout(&mut subject), deadline, "{state}");
        subject.talk.pair.now = deadline;
        subject.talk.pair.node(subject.side).adapter.handle_timeout(deadline);
        assert_eq!(hand::sent(&mut subject.talk.pair, subject.side).len(), 1, "{state}");
        deliver(&mut subject);
        assert!(next_timeout(&mut subject) > deadline.plus(Duration::from_secs(60)), "{state}");
    }
}
