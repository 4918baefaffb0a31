//! Real sockets on loopback, unprivileged: beyond virtual time.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use roce::{
    Access, AsyncEvent, BindError, CompletionChannel, CompletionQueue, Context, Device, DropReason,
    Limits, MemoryRegion, Mtu, NotifyKind, ObjectError, OpenError, OpenOptions, PKey, PKeyTable,
    Progress, QpInitAttr, QpType, QueuePair, RecvWr, SendFlags, SendWr, SrqAttr, Wc, WcStatus,
    link::Fabric,
};

mod corking;
mod event_loop;
mod foreign;
mod gpu;
mod leased;
mod memory;
mod misuse;
mod multicast;
mod names;
mod own_link;
mod privileged;
mod process;
mod raw;
mod raw_packets;
mod shards;
mod sharing;

mod shm;
mod sockets;
mod stopped;
mod turns;
mod xdp;

use crate::{own_test, watchdog};

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
const PATIENCE: Duration = Duration::from_secs(60);

struct Side {
    context: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
    channel: CompletionChannel,
}

impl Side {
    fn on(context: Context) -> Self {
        Self::of(context, QpType::Rc)
    }

    fn of(context: Context, qp_type: QpType) -> Self {
        let pd = context.alloc_pd().unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(1024, Some(&channel)).unwrap();
        let qp = pd.create_qp(&QpInitAttr::new(qp_type, &cq)).unwrap();
        let memory = pd.allocate(1 << 20, ALL).unwrap();
        Self { context, cq, qp, memory, channel }
    }

    fn next(&self) -> Wc {
        let start = Instant::now();
        loop {
            if let Some(wc) = self.cq.poll_one() {
                return wc;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no completion; counters: {:?}",
                self.context.counters()
            );
        }
    }
}

/// A duplicate response after this process waited for the processor does not count.
#[track_caller]
fn assert_nothing_dropped(context: &Context) {
    let counters = context.counters();
    let repeated = counters.timeouts + counters.tail_probes > 0;
    let reasons: Vec<_> = DropReason::ALL
        .iter()
        .filter(|&&reason| counters.dropped(reason) > 0)
        .filter(|&&reason| !(repeated && reason == DropReason::StaleResponse))
        .collect();
    assert!(reasons.is_empty(), "{reasons:?}, {counters:?}");
}

fn loopback(options: OpenOptions) -> Context {
    watchdog::start(roce_provider::describe_engines);
    Device::named("roce_lo").unwrap().open(options).unwrap()
}

fn connect(a: &Side, b: &Side) {
    let (end_a, end_b) = (a.qp.endpoint(0).unwrap(), b.qp.endpoint(0).unwrap());
    a.qp.connect_to(end_b).unwrap();
    b.qp.connect_to(end_a).unwrap();
}

fn pair() -> (Side, Side) {
    let (a, b) =
        (Side::on(loopback(OpenOptions::default())), Side::on(loopback(OpenOptions::default())));
    connect(&a, &b);
    (a, b)
}

fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = 2 * seed + 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

/// Outside of those that devices choose.
fn own_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    Ipv4Addr::new(127, 77, std::process::id() as u8, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

fn ipv6_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn send_write_and_read_carry_every_byte() {
    let (a, b) = pair();
    for (round, size) in [0, 1, 7, 4095, 4096, 4097, 65_539, 1 << 20].into_iter().enumerate() {
        let data = noise(size, round as u32 + 1);
        a.memory.write_at(0, &data).unwrap();
        b.memory.fill(0xEE).unwrap();
        b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge_all()])]).unwrap();
        a.qp.post_send(&[SendWr::send(2, a.memory.sge(0..size)).with_immediate([1, 2, 3, 4])])
            .unwrap();
        let received = b.next().result.unwrap();
        assert_eq!(
            (received.byte_len as usize, received.immediate.unwrap().0),
            (size, [1, 2, 3, 4])
        );
        a.next().result.unwrap();
        assert!(b.memory.to_vec(0..size).unwrap() == data, "SEND of {size} bytes");

        b.memory.fill(0xEE).unwrap();
        a.qp.post_send(&[SendWr::write(3, b.memory.remote(0), a.memory.sge(0..size))]).unwrap();
        a.next().result.unwrap();
        assert!(b.memory.to_vec(0..size).unwrap() == data, "WRITE of {size} bytes");

        a.memory.fill(0).unwrap();
        a.qp.post_send(&[SendWr::read(4, b.memory.remote(0), a.memory.sge(0..size))]).unwrap();
        assert_eq!(a.next().result.unwrap().byte_len as usize, size);
        assert!(a.memory.to_vec(0..size).unwrap() == data, "READ of {size} bytes");
    }
}

/// The background thread serves while the target's program sleeps.
#[test]
fn one_sided_operations_need_no_call_at_the_target() {
    let (a, b) = pair();
    for word in 1..=50_u64 {
        a.memory.store_u64(0, word).unwrap();
        a.qp.post_send(&[SendWr::write(word, b.memory.remote(8), a.memory.sge(0..8))]).unwrap();
        a.next().result.unwrap();
        assert_eq!(b.memory.load_u64(8).unwrap(), word);
    }
}

#[test]
fn ipv6_checks_the_whole_icrc() {
    let _turn = ipv6_turn();
    let Ok(device) = Device::at("::1".parse().unwrap()) else { return }; // no IPv6
    let context = device.open(OpenOptions::default()).unwrap();
    let (a, b) = (Side::on(context.clone()), Side::on(context.clone()));
    connect(&a, &b);
    a.memory.write_at(0, &noise(300_000, 5)).unwrap();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..300_000))]).unwrap();
    a.next().result.unwrap();
    assert!(b.memory.to_vec(0..300_000).unwrap() == noise(300_000, 5));
    assert_eq!(context.counters().icrc_solved, 0);
}

#[test]
fn packet_loss_and_damage_are_recovered_from() {
    let faulty = || OpenOptions {
        faults: "drop 2%, duplicate 2%, reorder 2%, corrupt 1%".parse().unwrap(),
        fault_seed: 7,
        ..OpenOptions::default()
    };
    let (a, b) = (Side::on(loopback(faulty())), Side::on(loopback(faulty())));
    connect(&a, &b);
    let data = noise(1 << 20, 9);
    a.memory.write_at(0, &data).unwrap();
    for half in 0..8 {
        let range = half << 17..(half + 1) << 17;
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(range.start), a.memory.sge(range))])
            .unwrap();
    }
    for _ in 0..8 {
        a.next().result.unwrap();
    }
    assert!(b.memory.to_vec(0..1 << 20).unwrap() == data);
    assert!(a.context.counters().retransmitted_packets > 0);
}

#[test]
fn a_fabric_of_the_process_carries_the_same() {
    let fabric = Fabric::new("delay 20us, drop every 50".parse().unwrap(), 3);
    let open =
        |ip: &str| Side::on(fabric.open(ip.parse().unwrap(), OpenOptions::default()).unwrap());
    let (a, b) = (open("10.0.0.1"), open("10.0.0.2"));
    connect(&a, &b);
    let data = noise(500_000, 2);
    a.memory.write_at(0, &data).unwrap();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..500_000))]).unwrap();
    a.next().result.unwrap();
    assert!(b.memory.to_vec(0..500_000).unwrap() == data);
    fabric.with_faults(roce::fabric::Faults::clear_rules);
    let gaps = b.context.counters().sequence_naks_sent;
    a.qp.post_send(&[SendWr::write(2, b.memory.remote(0), a.memory.sge(0..500_000))]).unwrap();
    a.next().result.unwrap();
    assert_eq!(b.context.counters().sequence_naks_sent, gaps, "nothing is lost any more");
    assert!(gaps > 0);
    assert!(matches!(
        fabric.open("10.0.0.1".parse().unwrap(), OpenOptions::default()),
        Err(OpenError::Bind(BindError::Taken(_)))
    ));
}

/// Nothing outruns the receiver, and a READ requests at most its receive buffer.
#[test]
fn ports_and_receive_buffers_of_a_fabric() {
    let plan = "rate 1gbit, receiver 100us 64kb, delay 20us";
    let fabric = Fabric::new(plan.parse().unwrap(), 3);
    let open =
        |ip: &str| Side::on(fabric.open(ip.parse().unwrap(), OpenOptions::default()).unwrap());
    let (a, b) = (open("10.0.0.1"), open("10.0.0.2"));
    connect(&a, &b);
    let data = noise(500_000, 2);
    b.memory.write_at(0, &data).unwrap();
    let start = Instant::now();
    a.qp.post_send(&[SendWr::read(1, b.memory.remote(0), a.memory.sge(0..500_000))]).unwrap();
    a.next().result.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(12));
    assert!(a.memory.to_vec(0..500_000).unwrap() == data);
    let here: IpAddr = "10.0.0.1".parse().unwrap();
    let figures = || (fabric.port(Some(here)), fabric.receive_buffer(Some(here)));
    let (mut port, mut buffer) = figures();
    // Retransmissions may be in flight after a thread waited for the processor.
    while port.passed != buffer.passed && start.elapsed() < PATIENCE {
        (port, buffer) = figures();
    }
    assert!(port.passed >= 120 && port.longest > 10_000, "{port:?}");
    assert_eq!((buffer.passed, buffer.dropped), (port.passed, 0));
    assert!(buffer.longest <= 64 << 10, "{buffer:?}");
}

#[test]
fn a_channel_wakes_a_thread_that_waits() {
    let (a, b) = pair();
    for _ in 0..20 {
        b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge(0..64)])]).unwrap();
        b.cq.req_notify(NotifyKind::Next);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| b.channel.wait(Some(PATIENCE)).unwrap());
            a.qp.post_send(&[SendWr::send(2, a.memory.sge(0..64))]).unwrap();
            waiting.join().unwrap();
        });
        b.next().result.unwrap();
        a.next().result.unwrap();
    }
}

#[test]
fn only_solicited_completions_wake_a_queue_armed_for_them() {
    let (a, b) = pair();
    b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge(0..8)]), RecvWr::new(2, [b.memory.sge(0..8)])])
        .unwrap();
    b.cq.req_notify(NotifyKind::Solicited);
    a.qp.post_send(&[SendWr::send(1, a.memory.sge(0..8))]).unwrap();
    a.next().result.unwrap();
    assert!(b.channel.poll().is_none());
    let solicited =
        SendWr::send(2, a.memory.sge(0..8)).with_flags(SendFlags::SOLICITED | SendFlags::SIGNALED);
    a.qp.post_send(&[solicited]).unwrap();
    b.channel.wait(Some(PATIENCE)).unwrap();
    assert_eq!([b.next().wr_id, b.next().wr_id], [1, 2]);
    assert!(b.channel.wait(Some(Duration::from_millis(5))).is_err());
}

/// Like tokio.
#[test]
fn a_channel_descriptor_becomes_readable_without_any_call_of_ours() {
    let (a, b) = pair();
    let descriptor = b.channel.as_fd();
    for round in 0..20 {
        b.qp.post_recv(&[RecvWr::new(round, [b.memory.sge(0..8)])]).unwrap();
        b.cq.req_notify(NotifyKind::Next);
        let sender = SendWr::send(round, a.memory.sge(0..8));
        a.qp.post_send(&[sender]).unwrap();
        let mut polled =
            [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec::try_from(PATIENCE).unwrap();
        assert_eq!(rustix::event::poll(&mut polled, Some(&limit)), Ok(1));
        assert!(b.channel.poll().is_some());
        assert_eq!(b.next().wr_id, round);
        assert_eq!(a.next().wr_id, round);
    }
}

#[test]
fn by_hand_nothing_moves_until_progress_is_called() {
    let manual = || OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
    let (a, b) = (Side::on(loopback(manual())), Side::on(loopback(manual())));
    connect(&a, &b);
    a.memory.write_at(0, b"x").unwrap();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..1))]).unwrap();
    assert!(a.context.progress_timeout().is_some(), "the acknowledge timer runs");
    let mut polled = [rustix::event::PollFd::from_borrowed_fd(
        b.context.progress_fd(),
        rustix::event::PollFlags::IN,
    )];
    assert_eq!(rustix::event::poll(&mut polled, None), Ok(1));
    assert_eq!(b.memory.to_vec(0..1).unwrap(), [0]);
    b.context.progress();
    assert_eq!(b.memory.to_vec(0..1).unwrap(), *b"x");
    a.next().result.unwrap();
}

#[test]
fn sixty_four_kibibytes_leave_in_three_runs_at_every_mtu() {
    // A small initial window would split the first run.
    let mut options = OpenOptions::default();
    let window = &mut options.congestion.window;
    (window.initial, window.destination_initial) = (window.most, window.destination_most);
    let (a, b) = (Side::on(loopback(options)), Side::on(loopback(OpenOptions::default())));
    connect(&a, &b);
    for mtu in Mtu::ALL {
        a.qp.to_reset().unwrap();
        b.qp.to_reset().unwrap();
        let (end_a, end_b) = (a.qp.endpoint(0).unwrap(), b.qp.endpoint(0).unwrap());
        a.qp.connect_with_mtu(end_b, mtu).unwrap();
        b.qp.connect_with_mtu(end_a, mtu).unwrap();
        let before =
            (a.context.link_counters().sent_runs, a.context.counters().retransmitted_packets);
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..65_536))]).unwrap();
        a.next().result.unwrap();
        let runs = a.context.link_counters().sent_runs - before.0;
        let again = a.context.counters().retransmitted_packets - before.1;
        assert!(runs <= 3 || again > 0, "{} bytes: {runs} runs", mtu.bytes());
    }
}

#[test]
fn a_silent_peer_ends_in_retry_exceeded() {
    let (a, b) = pair();
    b.qp.to_reset().unwrap();
    a.qp.to_reset().unwrap();
    let (end_a, end_b) = (a.qp.endpoint(0).unwrap(), b.qp.endpoint(0).unwrap());
    drop(b);
    a.qp.connect_to(end_b).unwrap();
    let _ = end_a;
    a.qp.post_send(&[SendWr::send(5, a.memory.sge(0..8))]).unwrap();
    // eight transmissions, 67 ms apart
    assert_eq!(a.next().result.unwrap_err().status, WcStatus::RetryExcErr);
}

#[test]
fn an_address_is_free_again_when_its_device_is_closed() {
    let address = own_address();
    let device = Device::at(address).unwrap();
    let alone = || OpenOptions { sockets_only: true, ..OpenOptions::default() };
    for _ in 0..3 {
        let context = device.open(alone()).unwrap();
        let taken = device.open(alone()).err().unwrap().to_string();
        assert!(taken.starts_with(&format!("port 4791 on {address} is taken")), "{taken}");
        drop(context);
    }
}

#[test]
fn device_names_that_name_nothing() {
    let error = |spec: &str| Device::named(spec).err().unwrap().to_string();
    assert!(error("mlx5_0").starts_with("device mlx5_0 does not exist"));
    assert!(error("udp:here").starts_with("here is not an IP address"));
    assert!(error("udp:192.0.2.1").starts_with("192.0.2.1 is not an address of this host"));
}

#[test]
fn several_completions_come_with_one_call() {
    let (a, b) = pair();
    let writes: Vec<_> =
        (0..10).map(|id| SendWr::write(id, b.memory.remote(0), a.memory.sge(0..8))).collect();
    a.qp.post_send(&writes).unwrap();
    let start = Instant::now();
    let (mut wcs, mut ids) = ([Wc::UNUSED; 4], Vec::new());
    while ids.len() < 10 && start.elapsed() < PATIENCE {
        let count = a.cq.poll(&mut wcs);
        ids.extend(wcs[..count].iter().map(|wc| wc.wr_id));
    }
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
}

#[test]
fn atomics_count_what_several_add() {
    let (a, b) = pair();
    b.memory.store_u64(8, 1000).unwrap();
    let adds: Vec<_> = (0..50)
        .map(|id| SendWr::fetch_add(id, b.memory.remote(8), 3, a.memory.sge(0..8)))
        .collect();
    a.qp.post_send(&adds).unwrap();
    for _ in 0..50 {
        assert_eq!(a.next().result.unwrap().byte_len, 8);
    }
    assert_eq!((b.memory.load_u64(8), a.memory.load_u64(0)), (Ok(1150), Ok(1147)));
    a.qp.post_send(&[SendWr::compare_swap(1, b.memory.remote(8), 1150, 7, a.memory.sge(0..8))])
        .unwrap();
    a.next().result.unwrap();
    assert_eq!((b.memory.load_u64(8), a.memory.load_u64(0)), (Ok(7), Ok(1150)));
}

#[test]
fn queue_pairs_share_a_receive_queue() {
    let (a, context) = (loopback(OpenOptions::default()), loopback(OpenOptions::default()));
    let (pd_a, pd_b) = (a.alloc_pd().unwrap(), context.alloc_pd().unwrap());
    let (cq_a, cq_b) = (a.create_cq(16, None).unwrap(), context.create_cq(16, None).unwrap());
    let srq = pd_b.create_srq(SrqAttr { max_wr: 4, max_sge: 1 }).unwrap();
    let (near, far) = (
        pd_a.allocate(8, Access::empty()).unwrap(),
        pd_b.allocate(8, Access::LOCAL_WRITE).unwrap(),
    );
    srq.post_recv(&[RecvWr::new(1, [far.sge_all()]), RecvWr::new(2, [far.sge_all()])]).unwrap();
    srq.set_limit(2).unwrap();
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..2 {
        let sender = pd_a.create_qp(&QpInitAttr::new(QpType::Rc, &cq_a)).unwrap();
        let receiver = pd_b
            .create_qp(&QpInitAttr { srq: Some(srq.clone()), ..QpInitAttr::new(QpType::Rc, &cq_b) })
            .unwrap();
        sender.connect_to(receiver.endpoint(0).unwrap()).unwrap();
        receiver.connect_to(sender.endpoint(0).unwrap()).unwrap();
        sender.post_send(&[SendWr::send(0, near.sge_all())]).unwrap();
        senders.push(sender);
        receivers.push(receiver);
    }
    let start = Instant::now();
    let mut ids = Vec::new();
    while ids.len() < 2 && start.elapsed() < PATIENCE {
        ids.extend(cq_b.poll_one().map(|wc| wc.wr_id));
    }
    ids.sort_unstable();
    assert_eq!((ids, srq.query().posted), (vec![1, 2], 0));
    // A packet's completion may precede its event.
    while context.poll_async_event() != Some(AsyncEvent::SrqLimitReached(srq.id())) {
        assert!(start.elapsed() < PATIENCE, "no event");
    }
}

/// One connection, two remote SRQs with a completion queue each. A domain's last handle frees it,
/// in any order.
#[test]
fn an_xrc_connection_reaches_every_queue_of_the_domain() {
    let limits = Limits { max_xrcd: 1, ..Limits::default() };
    let (a, b) = (
        loopback(OpenOptions::default()),
        loopback(OpenOptions { limits, ..OpenOptions::default() }),
    );
    let (pd_a, pd_b) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
    let (cq_a, cqs_b) =
        (a.create_cq(16, None).unwrap(), [(); 2].map(|()| b.create_cq(16, None).unwrap()));
    let xrcd = b.open_xrcd().unwrap();
    assert!(matches!(b.open_xrcd(), Err(ObjectError::TooMany { .. })));
    let attr = SrqAttr { max_wr: 4, max_sge: 1 };
    let srqs = [0, 1].map(|at| pd_b.create_xrc_srq(attr, &xrcd, &cqs_b[at]).unwrap());
    assert!(
        matches!(pd_a.create_xrc_srq(attr, &xrcd, &cq_a), Err(ObjectError::Unknown)),
        "a domain of another device"
    );
    assert_eq!(pd_b.create_srq(attr).unwrap().number(), None);
    let initiator = pd_a.create_qp(&QpInitAttr::new(QpType::XrcInitiator, &cq_a)).unwrap();
    let target = xrcd.create_target().unwrap();
    initiator.connect_to(target.endpoint(0).unwrap()).unwrap();
    target.connect_to(initiator.endpoint(0).unwrap()).unwrap();
    let (near, far) = (pd_a.allocate(64, ALL).unwrap(), pd_b.allocate(64, ALL).unwrap());
    near.write_at(0, b"first and second").unwrap();
    for (at, srq) in srqs.iter().enumerate() {
        srq.post_recv(&[RecvWr::new(at as u64, [far.sge(at * 16..at * 16 + 16)])]).unwrap();
    }
    let numbers = srqs.each_ref().map(|srq| srq.number().unwrap());
    initiator
        .post_send(&[
            SendWr::send(0, near.sge(10..16)).to_srq(numbers[1]),
            SendWr::send(1, near.sge(0..5)).to_srq(numbers[0]),
            SendWr::write(2, far.remote(32), near.sge(0..16)).to_srq(numbers[0]),
            SendWr::read(3, far.remote(32), near.sge(32..48)).to_srq(numbers[1]),
            SendWr::fetch_add(4, far.remote(56), 9, near.sge(56..64)).to_srq(numbers[1]),
        ])
        .unwrap();
    let start = Instant::now();
    let wait = |cq: &CompletionQueue| loop {
        if let Some(wc) = cq.poll_one() {
            return wc;
        }
        assert!(start.elapsed() < PATIENCE, "no completion; counters: {:?}", a.counters());
    };
    for id in 0..5 {
        let wc = wait(&cq_a);
        assert_eq!((wc.wr_id, wc.result.map(|_| ())), (id, Ok(())));
    }
    for (at, length) in [(0, 5), (1, 6)] {
        let wc = wait(&cqs_b[at]);
        assert_eq!(
            (wc.wr_id, wc.qpn, wc.result.unwrap().byte_len),
            (at as u64, target.qpn(), length)
        );
    }
    assert_eq!(
        (far.to_vec(0..5).unwrap(), far.to_vec(16..22).unwrap()),
        (b"first".to_vec(), b"second".to_vec())
    );
    assert_eq!(
        (near.to_vec(32..48).unwrap(), far.load_u64(56)),
        (b"first and second".to_vec(), Ok(9))
    );
    drop((xrcd, cqs_b, pd_b));
    assert!(b.open_xrcd().is_err(), "the target and the queues hold it");
    drop(srqs);
    assert!(b.open_xrcd().is_err(), "the target holds it");
    drop(target);
    b.open_xrcd().unwrap();
}

#[test]
fn partitions() {
    let pkeys = PKeyTable::new([PKey::DEFAULT, PKey(0x8001)]).unwrap();
    let context = loopback(OpenOptions { pkeys, ..OpenOptions::default() });
    assert_eq!(
        [0, 1, 2].map(|index| context.query_pkey(index)),
        [Some(PKey(0xFFFF)), Some(PKey(0x8001)), None]
    );
    assert_eq!((context.find_pkey(PKey(0x0001)), context.find_pkey(PKey(0x8002))), (Some(1), None));
    context.set_pkeys(PKeyTable::new([PKey::DEFAULT, PKey(0x8002)]).unwrap()).unwrap();
    assert_eq!(context.query_pkey(1), Some(PKey(0x8002)));
    assert_eq!(context.poll_async_event(), Some(AsyncEvent::PKeyChange));
}

#[test]
fn objects_come_and_go() {
    let context = loopback(OpenOptions::default());
    for _ in 0..1000 {
        let side = Side::on_small(&context);
        assert!(side.is_ok());
    }
}

impl Side {
    fn on_small(context: &Context) -> Result<(), Box<dyn std::error::Error>> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(1, None)?;
        let memory = pd.allocate(100, Access::LOCAL_WRITE)?;
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq))?;
        qp.to_init(roce::Init::default())?;
        qp.post_recv(&[RecvWr::new(1, [memory.sge_all()])])?;
        // the region goes before its request, the domain's handle before both
        drop((pd, memory));
        Ok(())
    }
}
