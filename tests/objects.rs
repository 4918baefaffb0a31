//! The objects around the transport, on real devices without privilege.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use roce::{
    Access, AddressVector, AhFromWcError, BadWorkRequest, CompletionQueue, Context, CqModeration,
    Data, Device, DeviceMemoryError, Gid, GidType, Init, Limits, MemoryFault, NotifyKind,
    ObjectError, ObjectKind, OpenOptions, PKey, PostError, Progress, QKey, QpCaps, QpInitAttr,
    QpType, Qpn, QueuePair, RecvWr, Rtr, Rts, SendWr, SrqAttr, State, Wc, link::Fabric,
    published_counters,
};
use roce_transport::{psn::Psn, wire::GRH_LEN};

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
const PATIENCE: Duration = Duration::from_secs(20);
const QKEY: QKey = QKey(0x1234);

fn loopback(options: OpenOptions) -> Context {
    Device::named("roce_lo").unwrap().open(options).unwrap()
}

fn open() -> Context {
    loopback(OpenOptions::default())
}

#[track_caller]
fn next(cq: &CompletionQueue) -> Wc {
    let start = Instant::now();
    loop {
        if let Some(wc) = cq.poll_one() {
            return wc;
        }
        assert!(start.elapsed() < PATIENCE, "no completion");
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn connected(
    a: &Context,
    cq_a: &CompletionQueue,
    b: &Context,
    cq_b: &CompletionQueue,
) -> (QueuePair, QueuePair) {
    let qp = |context: &Context, cq| {
        context.alloc_pd().unwrap().create_qp(&QpInitAttr::new(QpType::Rc, cq)).unwrap()
    };
    let (qp_a, qp_b) = (qp(a, cq_a), qp(b, cq_b));
    qp_a.connect_to(qp_b.endpoint(0).unwrap()).unwrap();
    qp_b.connect_to(qp_a.endpoint(0).unwrap()).unwrap();
    (qp_a, qp_b)
}

// Completion queues.

/// One thread polls, another resizes, a third sends: every completion comes once and in order.
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

/// The program sleeps, and the period ends without any packet.
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
        channel.wait(Some(PATIENCE)).unwrap();
        let waited = start.elapsed();
        (0..count).for_each(|id| assert_eq!(next(&cq_b).wr_id, id));
        waited
    };
    assert!(send(1) >= Duration::from_millis(30));
    // without a period only the count can end it
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
    let slack = Duration::from_millis(5); // the two clocks of the system are not read at the same instant
    assert!(clock.wall_time(received.timestamp) + slack >= before);
    assert!(clock.wall_time(sent.timestamp) <= after + slack);
}

// Address handles.

struct Datagrams {
    cq: CompletionQueue,
    qp: QueuePair,
    pd: roce::ProtectionDomain,
    memory: roce::MemoryRegion,
}

fn datagrams(context: &Context) -> Datagrams {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
    qp.to_init(Init { qkey: QKEY, ..Init::default() }).unwrap();
    qp.to_rtr(Rtr::Ud).unwrap();
    qp.to_rts(Rts::Ud(Psn::new(0))).unwrap();
    let memory = pd.allocate(256, ALL).unwrap();
    Datagrams { cq, qp, pd, memory }
}

#[test]
fn address_handles_there_and_back() {
    let (context_a, context_b) = (open(), open());
    let (a, b) = (datagrams(&context_a), datagrams(&context_b));
    let there = a.pd.create_ah(AddressVector::new(context_b.gids()[0], 0)).unwrap();
    assert_eq!(there.address_vector().dgid, context_b.query_gid(0).unwrap());
    b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge_all()])]).unwrap();
    a.qp.post_recv(&[RecvWr::new(2, [a.memory.sge_all()])]).unwrap();
    a.qp.post_send(&[SendWr::send_to(3, there.to(b.qp.qpn(), QKEY), Data::inline(b"who?"))])
        .unwrap();
    let received = next(&b.cq);
    let area: [u8; GRH_LEN] = b.memory.to_vec(0..GRH_LEN).unwrap().try_into().unwrap();
    let back = b.pd.create_ah_from_wc(&received, &area).unwrap();
    let source = received.result.unwrap().src_qp.unwrap();
    b.qp.post_send(&[SendWr::send_to(4, back.to(source, QKEY), Data::inline(b"me"))]).unwrap();
    assert_eq!([next(&a.cq), next(&a.cq)].map(|wc| wc.wr_id), [3, 2]);
    assert_eq!(a.memory.to_vec(GRH_LEN..GRH_LEN + 2).unwrap(), b"me");

    let sent = next(&b.cq);
    assert_eq!(b.pd.create_ah_from_wc(&sent, &area).err(), Some(AhFromWcError::NotDatagram));
    assert_eq!(
        b.pd.create_ah_from_wc(&received, &[0; GRH_LEN]).err(),
        Some(AhFromWcError::NoHeader)
    );
    // the same datagram, had it been received by the other device
    assert_eq!(a.pd.create_ah_from_wc(&received, &area).err(), Some(AhFromWcError::NoAddress));

    assert_eq!(context_b.init_ah_from_wc(&area), Ok(back.address_vector()));
    assert_eq!(context_b.init_ah_from_wc(&[0; GRH_LEN]), Err(AhFromWcError::NoHeader));
    assert_eq!(context_a.init_ah_from_wc(&area), Err(AhFromWcError::NoAddress));
}

/// Requests that are made while they are posted stop at the first that is wrong; a batch is posted
/// as a whole or not at all.
#[test]
fn ways_to_post() {
    let (a, b) = (open(), open());
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(64, None).unwrap());
    let (pd_a, pd_b) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
    let caps = QpCaps { max_send_wr: 4, max_inline_data: 8, ..QpCaps::default() };
    let qp_a = pd_a.create_qp(&QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, &cq_a) }).unwrap();
    let srq = pd_b.create_srq(SrqAttr { max_wr: 16, max_sge: 1 }).unwrap();
    let qp_b = pd_b
        .create_qp(&QpInitAttr { srq: Some(srq.clone()), ..QpInitAttr::new(QpType::Rc, &cq_b) })
        .unwrap();
    let send = |id| SendWr::send(id, Data::inline(b"x"));
    assert_eq!(
        qp_a.post_send_all(&[send(0)]),
        Err(BadWorkRequest { index: 0, error: PostError::State(State::Reset) })
    );
    qp_a.connect_to(qp_b.endpoint(0).unwrap()).unwrap();
    qp_b.connect_to(qp_a.endpoint(0).unwrap()).unwrap();
    let memory = pd_b.allocate(64, ALL).unwrap();
    let posted = srq.post_recv_with(|post| {
        (0..9).try_for_each(|id| post(&RecvWr::new(id, [memory.sge(0..8)])))
    });
    assert_eq!(posted, Ok(()));
    let twice = RecvWr::new(9, [memory.sge(0..8), memory.sge(8..16)]);
    assert_eq!(srq.post_recv_with(|post| post(&twice)), Err(PostError::TooManySges { limit: 1 }));

    let too_long = || SendWr::send(9, Data::inline(&[0; 9]));
    let refused = PostError::InlineTooLong { limit: 8 };
    let wrs = [send(1), send(2), too_long(), send(3)];
    assert_eq!(qp_a.post_send_with(|post| wrs.iter().try_for_each(post)), Err(refused));
    assert_eq!([next(&cq_a), next(&cq_a)].map(|wc| wc.wr_id), [1, 2]);
    let failed = |index, error| Err(BadWorkRequest { index, error });
    assert_eq!(qp_a.post_send_all(&wrs), failed(2, refused));
    let wrs: Vec<_> = (4..9).map(send).collect();
    assert_eq!(qp_a.post_send_all(&wrs), failed(4, PostError::QueueFull));
    assert_eq!(qp_a.post_send_all(&wrs[..4]), Ok(()));
    assert_eq!([(); 4].map(|()| next(&cq_a).wr_id), [4, 5, 6, 7], "nothing of what was refused");
    assert_eq!([(); 6].map(|()| next(&cq_b).wr_id), [0, 1, 2, 3, 4, 5]);

    let empty = RecvWr::new(1, []);
    assert_eq!(qp_a.post_recv_with(|post| post(&empty)), Ok(()));
    assert_eq!(qp_b.post_recv_with(|post| post(&empty)), Err(PostError::SharedQueue));
}

#[test]
fn a_handle_of_another_domain_is_refused() {
    let context = open();
    let side = datagrams(&context);
    let other = context.alloc_pd().unwrap();
    let ah = other.create_ah(AddressVector::new(context.gids()[0], 0)).unwrap();
    let refused = side
        .qp
        .post_send(&[SendWr::send_to(1, ah.to(Qpn::new(2), QKEY), Data::empty())])
        .unwrap_err();
    assert_eq!((refused.index, refused.error), (0, PostError::ForeignAddressHandle));
    assert_eq!(
        other.create_ah(AddressVector::new(context.gids()[0], 1)).err(),
        Some(ObjectError::GidIndex(1))
    );
}

#[test]
fn handles_make_room_when_they_go() {
    let context = loopback(OpenOptions {
        limits: Limits { max_ah: 2, ..Limits::default() },
        ..OpenOptions::default()
    });
    let pd = context.alloc_pd().unwrap();
    let make = || pd.create_ah(AddressVector::new(context.gids()[0], 0));
    let (first, second) = (make().unwrap(), make().unwrap());
    let copy = first.clone();
    drop(first);
    assert_eq!(
        make().err(),
        Some(ObjectError::TooMany { what: ObjectKind::AddressHandle, limit: 2 })
    );
    drop((copy, second));
    let _again = (make().unwrap(), make().unwrap());
}

// Domains, counters.

#[test]
fn a_parent_domain_is_the_domain_under_another_handle() {
    let limits = Limits { max_pd: 1, ..Limits::default() };
    let (context, other) = (loopback(OpenOptions { limits, ..OpenOptions::default() }), open());
    let pd = context.alloc_pd().unwrap();
    let td = context.alloc_td();
    assert_eq!(pd.parent_domain(Some(&other.alloc_td())).err(), Some(ObjectError::Unknown));
    drop(pd.parent_domain(None).unwrap());
    drop(pd.allocate(8, ALL).expect("a parent domain that goes leaves the domain"));
    let parent = pd.parent_domain(Some(&td)).unwrap();
    assert!(parent.thread_domain().is_some() && pd.thread_domain().is_none());
    // a queue pair of the one with memory of the other
    let cq = context.create_cq(16, None).unwrap();
    let (memory, qp) = (
        pd.allocate(8, ALL).unwrap(),
        parent.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap(),
    );
    drop((pd, parent, td));
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_send(&[SendWr::write(1, memory.remote(0), Data::inline(b"parental"))]).unwrap();
    next(&cq).result.unwrap();
    assert_eq!(memory.to_vec(0..8).unwrap(), b"parental");
    assert!(context.alloc_pd().is_err(), "what was made in it keeps it");
    drop((qp, memory));
    context.alloc_pd().unwrap();
}

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
    assert_eq!(value(Some(qp_a.qpn()), "sent_packets"), 4);
    assert_eq!(value(None, "sent_packets"), 4);
    send(&other_a, &other_b, 3);
    assert_eq!((value(Some(qp_a.qpn()), "sent_packets"), value(None, "sent_packets")), (4, 7));
}

// Device memory.

#[test]
fn device_memory_is_copied_registered_and_bounded() {
    let limits = Limits { max_dm_size: 4096, ..Limits::default() };
    let context = loopback(OpenOptions { limits, ..OpenOptions::default() });
    let memory = context.alloc_dm(3000).unwrap();
    assert!(matches!(
        context.alloc_dm(1097),
        Err(DeviceMemoryError::Size { length: 1097, limit: 4096, used: 3000 })
    ));
    assert!(matches!(context.alloc_dm(0), Err(DeviceMemoryError::Size { .. })));
    assert!(matches!(context.alloc_dm(usize::MAX), Err(DeviceMemoryError::Size { .. })));
    memory.write_at(2998, b"xy").unwrap();
    assert_eq!(memory.write_at(2999, b"xy"), Err(MemoryFault));
    let mut end = [0; 3];
    memory.read_at(2997, &mut end).unwrap();
    assert_eq!(&end, b"\0xy");

    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
    let out_of_range = [0..3001, 5000..5001, 10..3001];
    for range in out_of_range {
        assert!(matches!(pd.register_dm(&memory, range, ALL), Err(DeviceMemoryError::Range(_))));
    }
    let other = open();
    let foreign = other.alloc_pd().unwrap();
    assert!(matches!(foreign.register_dm(&memory, 0..8, ALL), Err(DeviceMemoryError::OtherDevice)));
    // addresses count from the start of the range
    let region = pd.register_dm(&memory, 1000..1020, ALL).unwrap();
    assert_eq!((region.address(), region.len()), (0, 20));
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_send(&[SendWr::write(1, region.remote(16), Data::inline(b"tail"))]).unwrap();
    next(&cq).result.unwrap();
    let plain = pd.allocate(8, ALL).unwrap();
    qp.post_send(&[SendWr::fetch_add(2, region.remote(8), 5, plain.sge_all())]).unwrap();
    next(&cq).result.unwrap();
    let mut bytes = [0; 22];
    memory.read_at(999, &mut bytes).unwrap();
    assert_eq!(bytes[9..17], 5_u64.to_ne_bytes());
    assert_eq!(bytes[17..], *b"tail\0");
    qp.post_send(&[SendWr::write(3, region.remote(17), Data::inline(b"tail"))]).unwrap();
    assert!(next(&cq).result.is_err(), "beyond the range, though not beyond the memory");

    drop(memory);
    assert!(context.alloc_dm(1097).is_err(), "the region still uses it");
    drop(region);
    drop(qp);
    context.alloc_dm(4096).unwrap();
}

// What a device tells of itself.

#[test]
fn attributes_of_a_device() {
    let limits = Limits { max_qp: 77, ..Limits::default() };
    let (a, b) = (loopback(OpenOptions { limits, ..OpenOptions::default() }), open());
    let (one, other) = (a.query_device(), b.query_device());
    assert_eq!((one.limits, a.limits()), (limits, limits));
    assert_eq!(one.max_res_rd_atom, 77 * 128);
    assert_eq!((one.max_srq_wr, one.max_srq_sge), (limits.max_qp_wr, limits.max_sge));
    assert_ne!(one.node_guid, other.node_guid);
    assert_eq!(one.sys_image_guid, other.sys_image_guid, "the same interface");
    assert_eq!(one.node_guid.0[0] & 3, 2, "locally assigned, of one device");
    assert_eq!(
        (one.phys_port_cnt, one.hca_core_clock, one.completion_timestamp_mask),
        (1, 1_000_000, u64::MAX)
    );
    let seeded = || {
        loopback(OpenOptions { seed: Some([7; 32]), ..OpenOptions::default() })
            .query_device()
            .node_guid
    };
    assert_eq!(seeded(), seeded());
}

#[test]
fn tables_of_a_port() {
    let context = open();
    let port = context.query_port();
    assert!(port.active && port.bad_pkeys == 0);
    let table = context.query_gid_table();
    assert_eq!(table.len(), 1);
    assert_eq!((table[0].gid, table[0].index, table[0].port), (context.gids()[0], 0, 1));
    assert_eq!(table[0].gid_type, GidType::RoceV2);
    let index = fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
    assert_eq!(table[0].interface, index.trim().parse::<u32>().unwrap());
    assert_eq!(context.query_gid(0), Some(context.gids()[0]));
    assert_eq!(context.query_gid(port.gid_table_len - 1), Some(Gid::default()), "unused");
    assert_eq!(context.query_gid(port.gid_table_len), None);
    assert_eq!(
        (context.query_pkey(0), context.query_pkey(port.pkey_table_len)),
        (Some(PKey::DEFAULT), None)
    );
}

#[test]
fn a_network_in_the_process_has_no_interface() {
    let fabric = Fabric::new(Default::default(), 0);
    let context = fabric.open("10.0.0.1".parse().unwrap(), OpenOptions::default()).unwrap();
    assert_eq!(context.query_gid_table()[0].interface, 0);
    assert!(context.query_port().active);
}

// Published counters.

/// In this process, so that the moment of closing is known.
#[test]
fn counters_are_published_within_seconds_and_go_with_the_device() {
    let (a, b) = (open(), open());
    let own = |context: &Context| {
        let gid = context.gids()[0].to_string();
        let all = published_counters().unwrap();
        all.into_iter()
            .find(|published| published.pid == std::process::id() && published.gids.contains(&gid))
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
    // nobody calls anything meanwhile
    eventually("the sender's counters are published", || sent(&a) == a.counters().sent_packets);
    eventually("the receiver's counters are published", || sent(&b) == b.counters().sent_packets);
    let opened = own(&a).unwrap().opened;
    drop((cq_a, cq_b, qp_a, qp_b));
    let gid = a.gids()[0].to_string();
    drop(a);
    let is_there =
        |published: &roce::Published| published.gids.contains(&gid) && published.opened == opened;
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
            .find(|published| published.pid == std::process::id() && published.gids.contains(&gid));
        own.unwrap().counters.iter().find(|counter| counter.name == "sent_packets").unwrap().value
    };
    let cq = context.create_cq(16, None).unwrap();
    let qp = context.alloc_pd().unwrap().create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_recv(&[RecvWr::new(1, [])]).unwrap();
    qp.post_send(&[SendWr::send(2, Data::empty())]).unwrap();
    eventually("calling progress publishes", || {
        context.progress();
        value() == 2
    });
}
