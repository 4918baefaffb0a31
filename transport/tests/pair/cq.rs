//! Completion queues: resizing, moderation (11.2.8, `ibv_resize_cq`, `ibv_modify_cq`).

use std::time::Duration;

use roce_transport::{
    adapter::{ObjectError, ObjectSize},
    event::{DropReason, Event},
    qp::{ModifyError, QpInit, QpType, State},
    time::Instant,
    work::{CqId, CqModeration, Data, NotifyKind, RecvWr, SendFlags, SendWr, Wc},
};

use crate::common::{End, Half, Options, Pair, Side, all_ok, pkt, qp_init};

use roce_transport::wire::Operation as Op;

#[test]
fn a_resize_keeps_what_is_there_and_its_order() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_with(Options::default(), Options { cqe: 4, ..Options::default() });
    let cq = b.recv_cq.id();
    let send = |pair: &mut Pair, ids: std::ops::Range<u64>| {
        for id in ids {
            pair.post_recv(&b, &RecvWr::new(id, []));
            pair.post_send(&a, &SendWr::send(id, Data::empty()));
        }
        pair.run();
    };
    send(&mut pair, 0..4);
    pair.b.adapter.resize_cq(cq, 10, None).unwrap();
    send(&mut pair, 4..10);
    assert_eq!((b.recv_cq.capacity(), b.recv_cq.len()), (10, 10));
    assert_eq!(pair.b.adapter.resize_cq(cq, 9, None), Err(ObjectError::Held(10)));
    assert_eq!(b.recv_cq.capacity(), 10, "nothing has changed");
    let first = b.recv_cq.pop().unwrap();
    pair.b.adapter.resize_cq(cq, 9, None).unwrap();
    assert_eq!(first.wr_id, 0);
    assert_eq!(b.recv_outcomes(), all_ok(1..10, 0));
    assert_eq!(pair.state(&b), State::Rts);
    assert_eq!(pair.events(Side::B), []);
}

#[test]
fn the_new_size_is_where_it_overflows() {
    for (size, fits) in [(3, 3), (6, 6)] {
        let mut half = Half::new(Options { cqe: 4, ..Options::default() });
        half.node.adapter.resize_cq(half.qp.recv_cq.id(), size, None).unwrap();
        for id in 0..=fits {
            half.post_recv(&RecvWr::new(id, []));
            half.send(&pkt(Op::SendOnly, 0x200 + id as u32));
        }
        let events = [Event::CqError(half.qp.recv_cq.id()), Event::QpFatal(half.qp.qpn)];
        half.node.drain_events();
        assert_eq!(half.node.events, events);
        assert_eq!(half.qp.recv_outcomes(), all_ok(0..fits, 0));
        assert_eq!(
            half.node.adapter.resize_cq(half.qp.recv_cq.id(), 100, None),
            Err(ObjectError::Overrun)
        );
    }
}

#[test]
fn sizes_that_are_refused() {
    let mut half = Half::reset(Options { cqe: 4, ..Options::default() });
    let (cq, limit) = (half.qp.recv_cq.id(), half.node.adapter.limits().max_cqe);
    let refused = Err(ObjectError::Size { what: ObjectSize::Completions, least: 1, limit });
    assert_eq!(half.node.adapter.resize_cq(cq, 0, None), refused);
    assert_eq!(half.node.adapter.resize_cq(cq, limit + 1, None), refused);
    assert_eq!(half.node.adapter.resize_cq(CqId(77), 4, None), Err(ObjectError::Unknown));
    assert_eq!(half.qp.recv_cq.capacity(), 4);
}

/// Completions would be lost silently.
#[test]
fn an_overflowed_queue_takes_no_more_queue_pairs() {
    let mut half = Half::new(Options { cqe: 1, ..Options::default() });
    let (send_cq, recv_cq) = (half.qp.send_cq.clone(), half.qp.recv_cq.clone());
    let options = Options::default();
    let waiting =
        half.node.qp_with(Side::A, QpType::Rc, &options, send_cq.clone(), recv_cq.clone());
    for id in 0..2 {
        half.post_recv(&RecvWr::new(id, []));
        half.send(&pkt(Op::SendOnly, 0x200 + id as u32));
    }
    assert!(recv_cq.has_overrun());
    assert_eq!(half.node.state(waiting.qpn), State::Reset);
    assert_eq!(
        half.node.adapter.to_init(waiting.qpn, &Default::default()),
        Err(ModifyError::CqOverrun)
    );
    let init = QpInit { send_cq, ..qp_init(QpType::Rc, &recv_cq, half.node.pd) };
    assert_eq!(half.node.adapter.create_qp(init), Err(ObjectError::Overrun));
}

/// Polling until empty, then arming.
#[test]
fn what_comes_before_arming() {
    let (mut half, mut psn) = (Half::new(Options::default()), 0x200);
    let cq = half.qp.recv_cq.clone();
    let mut taken = [Wc::UNUSED; 8];
    assert_eq!(cq.poll(&mut taken), 0);
    assert!(!arrival(&mut half, &mut psn, false));
    cq.req_notify(NotifyKind::Next);
    assert!(cq.is_armed(), "the specification's way");
    assert!(arrival(&mut half, &mut psn, false), "causes one");
    assert_eq!(cq.poll(&mut taken), 2);

    assert!(!arrival(&mut half, &mut psn, false));
    assert!(!cq.req_notify_unpolled(NotifyKind::Solicited));
    assert!(cq.req_notify_unpolled(NotifyKind::Next) && !cq.is_armed(), "the adapters' way");
    assert!(!arrival(&mut half, &mut psn, true), "it has been asked for once");
    assert!(!cq.req_notify_unpolled(NotifyKind::Next), "nor for what came behind an event");
    assert!(arrival(&mut half, &mut psn, false));
}

const PERIOD: Duration = Duration::from_micros(100);

fn moderated(count: u16, period: Duration, kind: NotifyKind) -> Half {
    let mut half = Half::new(Options::default());
    let cq = half.qp.recv_cq.clone();
    half.node.adapter.moderate_cq(cq.id(), CqModeration { count, period }).unwrap();
    assert_eq!(cq.moderation(), CqModeration { count, period });
    cq.req_notify(kind);
    half
}

/// True if the reader was notified.
fn arrival(half: &mut Half, psn: &mut u32, solicited: bool) -> bool {
    half.post_recv(&RecvWr::new(0, []));
    let packet = crate::common::Pkt { solicited, ..pkt(Op::SendOnly, *psn) };
    half.send(&packet);
    *psn += 1;
    woken(half)
}

fn woken(half: &mut Half) -> bool {
    half.node.drain_events();
    let events = std::mem::take(&mut half.node.events);
    assert!(events.is_empty() || events == [Event::Completion(half.qp.recv_cq.id())], "{events:?}");
    !events.is_empty()
}

#[test]
fn an_event_after_so_many_completions() {
    let mut half = moderated(3, Duration::ZERO, NotifyKind::Next);
    let mut psn = 0x200;
    let woken_by: Vec<bool> = (0..7).map(|_| arrival(&mut half, &mut psn, false)).collect();
    assert_eq!(
        woken_by,
        [false, false, true, false, false, false, false],
        "once for being armed once"
    );
    half.qp.recv_cq.req_notify(NotifyKind::Next);
    let woken_by: Vec<bool> = (0..3).map(|_| arrival(&mut half, &mut psn, false)).collect();
    assert_eq!(woken_by, [false, false, true], "what came before arming does not count");
    assert_eq!(half.node.adapter.poll_timeout(), None);
}

#[test]
fn an_event_after_a_period() {
    for count in [0, 100] {
        let mut half = moderated(count, PERIOD, NotifyKind::Next);
        let mut psn = 0x200;
        assert!(!arrival(&mut half, &mut psn, false));
        assert_eq!(
            half.node.adapter.poll_timeout(),
            Some(half.now.plus(PERIOD)),
            "from the first completion on"
        );
        half.advance(PERIOD / 2);
        assert!(!arrival(&mut half, &mut psn, false));
        half.advance(PERIOD / 2 - Duration::from_nanos(1));
        assert!(!woken(&mut half));
        half.advance(Duration::from_nanos(1));
        assert!(woken(&mut half));
        half.advance(PERIOD * 3);
        assert!(
            !arrival(&mut half, &mut psn, false) && half.node.adapter.poll_timeout().is_none(),
            "not armed"
        );
    }
}

#[test]
fn the_count_may_be_reached_before_the_period() {
    let mut half = moderated(2, PERIOD, NotifyKind::Next);
    let mut psn = 0x200;
    assert!(!arrival(&mut half, &mut psn, false));
    assert!(arrival(&mut half, &mut psn, false));
    half.advance(PERIOD * 2);
    assert!(!woken(&mut half), "the period has nothing left to tell");
    // a later one starts a new period
    half.qp.recv_cq.req_notify(NotifyKind::Next);
    assert!(!arrival(&mut half, &mut psn, false));
    assert_eq!(half.node.adapter.poll_timeout(), Some(half.now.plus(PERIOD)));
}

#[test]
fn only_completions_of_the_kind_count() {
    let mut half = moderated(2, PERIOD, NotifyKind::Solicited);
    let mut psn = 0x200;
    assert!(!arrival(&mut half, &mut psn, false) && half.node.adapter.poll_timeout().is_none());
    assert!(!arrival(&mut half, &mut psn, true));
    assert!(!arrival(&mut half, &mut psn, false));
    assert!(arrival(&mut half, &mut psn, true));
}

#[test]
fn new_moderation_delivers_what_was_put_off() {
    let mut half = moderated(10, PERIOD, NotifyKind::Next);
    let cq = half.qp.recv_cq.id();
    let mut psn = 0x200;
    half.node.adapter.moderate_cq(cq, CqModeration::default()).unwrap();
    assert!(!woken(&mut half), "nothing was put off");
    half.node.adapter.moderate_cq(cq, CqModeration { count: 10, period: PERIOD }).unwrap();
    assert!(!arrival(&mut half, &mut psn, false));
    half.node.adapter.moderate_cq(cq, CqModeration::default()).unwrap();
    assert!(woken(&mut half));
    half.qp.recv_cq.req_notify(NotifyKind::Next);
    assert!(arrival(&mut half, &mut psn, false), "without moderation each one wakes");
    let too_long =
        CqModeration { count: 0, period: CqModeration::MAX_PERIOD + Duration::from_micros(1) };
    let refused = ObjectError::Size { what: ObjectSize::CqPeriod, least: 0, limit: 65_535 };
    assert_eq!(half.node.adapter.moderate_cq(cq, too_long), Err(refused));
    assert_eq!(
        half.node.adapter.moderate_cq(CqId(99), CqModeration::default()),
        Err(ObjectError::Unknown)
    );
}

/// The next owner of its number has no timer either.
#[test]
fn a_destroyed_queue_has_no_timer() {
    let mut half = moderated(10, PERIOD, NotifyKind::Next);
    arrival(&mut half, &mut 0x200, false);
    let cq = half.qp.recv_cq.id();
    half.node.adapter.destroy_qp(half.qp.qpn).unwrap();
    half.node.adapter.destroy_cq(cq).unwrap();
    assert_eq!(half.node.adapter.create_cq(4).unwrap().id(), cq);
    assert_eq!(half.node.adapter.poll_timeout(), None);
    half.node.adapter.handle_timeout(Instant::from_nanos(u64::MAX));
    half.node.drain_events();
    assert_eq!(half.node.events, []);
}

#[test]
fn a_burst_gives_one_event() {
    let mut pair = Pair::new();
    let (a, b): (End, End) = pair.connect(Options::default());
    pair.b.adapter.moderate_cq(b.recv_cq.id(), CqModeration { count: 0, period: PERIOD }).unwrap();
    b.recv_cq.req_notify(NotifyKind::Next);
    for id in 0..10 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()).with_flags(SendFlags::empty()));
    }
    pair.allow(DropReason::OutOfSequence);
    let start = pair.now;
    pair.run();
    assert_eq!(pair.events(Side::B), [Event::Completion(b.recv_cq.id())]);
    let waited = pair.now.since(b.recv_cq.pop().unwrap().timestamp);
    assert!(waited == PERIOD && pair.now.since(start) > PERIOD, "{waited:?}");
}
