use std::process;

use roce::{
    Context, Data, ObjectError, OpenOptions, Progress, Published, QpInitAttr, QpType, Qpn,
    QueuePair, RecvWr, SendWr, published_counters,
};

use super::{connected, eventually, loopback, next, open};

#[test]
fn counters_of_a_queue_pair_and_of_the_device() {
    let (a, b) = (open(), open());
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(64, None).unwrap());
    let (qp_a, qp_b) = connected(&a, &cq_a, &b, &cq_b);
    let (other_a, other_b) = connected(&a, &cq_a, &b, &cq_b);
    let send = |from: &QueuePair, to: &QueuePair, count| {
        for id in 0..count {
            to.post_recv(&[RecvWr::new(id, [])]).unwrap();
            from.post_send(&[SendWr::send(id, Data::empty())]).unwrap();
            next(&cq_a).result.unwrap();
            next(&cq_b).result.unwrap();
        }
    };
    send(&qp_a, &qp_b, 2);
    let counters = a.create_counters();
    assert_eq!(counters.read(), []);
    counters.attach_qp(&qp_a).unwrap();
    assert_eq!(counters.attach_qp(&qp_b), Err(ObjectError::Unknown), "of another device");
    send(&other_a, &other_b, 3);
    counters.attach_device();
    send(&qp_a, &qp_b, 4);
    let value = |qpn: Option<Qpn>, name: &str| {
        let values = counters.read();
        let found =
            values.iter().find(|value| value.qpn == qpn && value.counter.name == name).unwrap();
        assert!(!found.counter.explanation.is_empty());
        found.counter.value
    };
    // a delayed response may cause retransmissions
    let sent = |qpn| value(qpn, "sent_packets") - value(qpn, "retransmitted_packets");
    assert_eq!((sent(Some(qp_a.qpn())), sent(None)), (4, 4));
    send(&other_a, &other_b, 3);
    assert_eq!((sent(Some(qp_a.qpn())), sent(None)), (4, 7));
}

/// In this process: the moment of closing is known.
#[test]
fn counters_are_published_within_seconds_and_go_with_the_device() {
    let (a, b) = (open(), open());
    let own = |context: &Context| {
        let gid = context.gids()[0].to_string();
        let all = published_counters().unwrap();
        all.into_iter()
            .find(|published| published.pid == process::id() && published.gids.contains(&gid))
    };
    let sent = |context: &Context| {
        let published = own(context).expect("an open device is published");
        published.counters.iter().find(|counter| counter.name == "sent_packets").unwrap().value
    };
    assert_eq!((sent(&a), sent(&b)), (0, 0));
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(64, None).unwrap());
    let (qp_a, qp_b) = connected(&a, &cq_a, &b, &cq_b);
    for id in 0..5 {
        qp_b.post_recv(&[RecvWr::new(id, [])]).unwrap();
        qp_a.post_send(&[SendWr::send(id, Data::empty())]).unwrap();
        next(&cq_a).result.unwrap();
    }
    // the program makes no call meanwhile
    eventually("the sender's counters are published", || sent(&a) == a.counters().sent_packets);
    eventually("the receiver's counters are published", || sent(&b) == b.counters().sent_packets);
    let published = own(&a).unwrap();
    assert!(published.shares_network());
    let mut elsewhere = published.clone();
    elsewhere.network += 1;
    assert!(!elsewhere.shares_network());
    let opened = published.opened;
    drop((cq_a, cq_b, qp_a, qp_b));
    let gid = a.gids()[0].to_string();
    drop(a);
    let is_there =
        |published: &Published| published.gids.contains(&gid) && published.opened == opened;
    assert!(!published_counters().unwrap().iter().any(is_there), "gone with the device");
}

#[test]
fn a_device_served_by_hand_publishes_too() {
    let context = loopback(OpenOptions { progress: Progress::Manual, ..OpenOptions::default() });
    let gid = context.gids()[0].to_string();
    let value = || {
        let all = published_counters().unwrap();
        let own = all
            .iter()
            .find(|published| published.pid == process::id() && published.gids.contains(&gid));
        own.unwrap().counters.iter().find(|counter| counter.name == "sent_packets").unwrap().value
    };
    let cq = context.create_cq(16, None).unwrap();
    let qp = context.alloc_pd().unwrap().create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_recv(&[RecvWr::new(1, [])]).unwrap();
    qp.post_send(&[SendWr::send(2, Data::empty())]).unwrap();
    eventually("calling progress publishes", || {
        context.progress();
        // more if this thread was descheduled for a retransmission timeout
        let sent = context.counters().sent_packets;
        sent >= 2 && value() == sent
    });
}
