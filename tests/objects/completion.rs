use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use roce::{CqModeration, Data, NotifyKind, ObjectError, RecvWr, SendWr};

use super::{TIMEOUT, connected, next, open};

#[test]
fn a_resize_under_a_poller_loses_nothing() {
    const MESSAGES: u64 = 3000;
    let (a, b) = (open(), open());
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(16, None).unwrap());
    let (qp_a, qp_b) = connected(&a, &cq_a, &b, &cq_b);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sizes = [16, 300, 40, 1000, 16, 5000].into_iter().cycle();
            while !done.load(Ordering::Relaxed) {
                match cq_b.resize(sizes.next().unwrap()) {
                    Ok(()) | Err(ObjectError::Held(_)) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for id in 0..MESSAGES {
            qp_b.post_recv(&[RecvWr::new(id, [])]).unwrap();
            qp_a.post_send(&[SendWr::send(id, Data::empty())]).unwrap();
            assert_eq!(next(&cq_b).wr_id, id);
            assert_eq!(next(&cq_a).wr_id, id);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(!cq_b.has_overrun());
    assert_eq!(cq_b.poll_one(), None);
}

/// No packet comes while the program sleeps.
#[test]
fn a_moderated_event_comes_after_its_period() {
    let (a, b) = (open(), open());
    let channel = b.create_channel().unwrap();
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(64, Some(&channel)).unwrap());
    let (qp_a, qp_b) = connected(&a, &cq_a, &b, &cq_b);
    let moderation = CqModeration { count: 3, period: Duration::from_millis(30) };
    cq_b.moderate(moderation).unwrap();
    assert_eq!(cq_b.moderation(), moderation);
    let too_long = CqModeration { count: 0, period: Duration::from_millis(66) };
    assert!(matches!(cq_b.moderate(too_long), Err(ObjectError::Size { .. })));
    let send = |count| {
        cq_b.req_notify(NotifyKind::Next);
        let start = Instant::now();
        for id in 0..count {
            qp_b.post_recv(&[RecvWr::new(id, [])]).unwrap();
            qp_a.post_send(&[SendWr::send(id, Data::empty())]).unwrap();
        }
        channel.wait(Some(TIMEOUT)).unwrap();
        let waited = start.elapsed();
        (0..count).for_each(|id| assert_eq!(next(&cq_b).wr_id, id));
        waited
    };
    assert!(send(1) >= Duration::from_millis(30));
    // without a period only the count ends it
    cq_b.moderate(CqModeration { count: 3, period: Duration::ZERO }).unwrap();
    send(3);
}

#[test]
fn timestamps_are_times_of_day() {
    let (a, b) = (open(), open());
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(64, None).unwrap());
    let (qp_a, qp_b) = connected(&a, &cq_a, &b, &cq_b);
    let before = SystemTime::now();
    qp_b.post_recv(&[RecvWr::new(1, [])]).unwrap();
    qp_a.post_send(&[SendWr::send(2, Data::empty())]).unwrap();
    let (received, sent) = (next(&cq_b), next(&cq_a));
    let after = SystemTime::now();
    let clock = b.query_clock();
    assert!(
        received.timestamp <= sent.timestamp && sent.timestamp <= clock.raw,
        "one clock for all devices"
    );
    let slack = Duration::from_millis(5); // the system's two clocks are not read at once
    assert!(clock.wall_time(received.timestamp) + slack >= before);
    assert!(clock.wall_time(sent.timestamp) <= after + slack);
}
