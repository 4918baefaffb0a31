//! Turns of an engine on full, slow and narrow links.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant as StdInstant},
};

use roce::{
    Access, AddressVector, Context, Device, Init, Mtu, OpenOptions, PeerAttr, Progress, QpInitAttr,
    QpType, RecvWr, RequesterAttr, ResponderAttr, Rtr, Rts, SendWr,
    link::{Datagram, Link, MulticastLink, Preparation, Prepared},
    transport::{
        adapter::{SourcePort, Transmit, TransmitLimits},
        time::Instant,
    },
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{
    ALL, PATIENCE, Side, connect, noise,
    own_link::{Wire, wire},
};

/// Most bytes per turn: a transmit buffer.
const BUFFER: usize = 272 << 10;

struct Throttle {
    /// In runs.
    credit: AtomicUsize,
    /// Per call.
    delay: Duration,
    /// Writable while there is credit; `None`: not shown.
    gate: Option<OwnedFd>,
    log: Mutex<Vec<Step>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Received,
    Sent(usize),
    Full,
}

impl Throttle {
    fn new(credit: usize, shows_room: bool, delay: Duration) -> Arc<Self> {
        let gate = shows_room.then(|| eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let throttle =
            Self { credit: AtomicUsize::new(credit), delay, gate, log: Mutex::default() };
        if credit == 0 {
            throttle.close();
        }
        Arc::new(throttle)
    }

    /// An eventfd is writable below its greatest count.
    fn close(&self) {
        if let Some(gate) = &self.gate {
            let _ = rustix::io::write(gate, &(u64::MAX - 1).to_ne_bytes());
        }
    }

    fn grant(&self, runs: usize) {
        self.credit.fetch_add(runs, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            let _ = rustix::io::read(gate, &mut [0; 8]);
        }
    }

    fn count(&self, is: impl Fn(&Step) -> bool) -> usize {
        self.log.lock().unwrap().iter().filter(|step| is(step)).count()
    }
}

/// Takes one run per call while it has credit.
struct Throttled {
    wire: Wire,
    throttle: Arc<Throttle>,
}

impl Link for Throttled {
    fn addresses(&self) -> Vec<IpAddr> {
        self.wire.addresses()
    }

    fn limits(&self) -> TransmitLimits {
        self.wire.limits()
    }

    fn source_port(&self) -> SourcePort {
        self.wire.source_port()
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        thread::sleep(self.throttle.delay);
        let mut log = self.throttle.log.lock().unwrap();
        let credit = self.throttle.credit.load(Ordering::SeqCst);
        if credit == 0 {
            self.throttle.close();
            log.push(Step::Full);
            return Ok(0);
        }
        self.throttle.credit.fetch_sub(1, Ordering::SeqCst);
        log.push(Step::Sent(runs[0].range.len()));
        self.wire.send(now, bytes, &runs[..1])
    }

    fn blocked(&self) -> Option<BorrowedFd<'_>> {
        self.throttle.gate.as_ref().map(AsFd::as_fd)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        self.throttle.log.lock().unwrap().push(Step::Received);
        self.wire.receive(now, sink)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.wire.descriptors()
    }
}

fn open(link: impl Link + 'static, options: OpenOptions) -> Context {
    Device::with_link("wire", link, Mtu::B4096, options).unwrap()
}

fn manual() -> OpenOptions {
    OpenOptions { progress: Progress::Manual, ..OpenOptions::default() }
}

fn sides(throttle: &Arc<Throttle>, options: OpenOptions) -> (Side, Side) {
    let [near, far] = wire();
    let near = Throttled { wire: near, throttle: throttle.clone() };
    (Side::on(open(near, options)), Side::on(open(far, OpenOptions::default())))
}

/// No timeout rescues data that a turn leaves.
fn connect_without_timers(a: &Side, b: &Side) {
    let ends = [a, b].map(|side| side.qp.endpoint(0).unwrap());
    for (side, own, peer) in [(a, ends[0], ends[1]), (b, ends[1], ends[0])] {
        let peer = PeerAttr {
            dest_qpn: peer.qpn,
            path_mtu: Mtu::B4096,
            rq_psn: peer.psn,
            av: AddressVector::new(peer.gid, 0),
        };
        let responder = ResponderAttr { max_dest_rd_atomic: 16, min_rnr_timer: 12 };
        let requester = RequesterAttr { timeout: 0, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 };
        side.qp.to_init(Init { access: ALL, ..Init::default() }).unwrap();
        side.qp.to_rtr(Rtr::Rc(peer, responder)).unwrap();
        side.qp.to_rts(Rts::Rc(own.psn, requester)).unwrap();
    }
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
}

/// Like an event loop.
fn sleep_on(context: &Context) {
    let limit = context.progress_timeout().unwrap_or(PATIENCE).min(PATIENCE);
    let mut polled = [PollFd::from_borrowed_fd(context.progress_fd(), PollFlags::IN)];
    poll(&mut polled, Some(&limit.try_into().unwrap())).unwrap();
}

#[test]
fn a_turn_receives_between_two_buffers() {
    let throttle = Throttle::new(usize::MAX, true, Duration::ZERO);
    // more than a buffer at once
    let mut options = manual();
    let window = &mut options.congestion.window;
    (window.initial, window.destination_initial) = (window.most, window.destination_most);
    let (a, b) = sides(&throttle, options);
    connect(&a, &b);
    throttle.log.lock().unwrap().clear();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..1 << 20))]).unwrap();
    assert_eq!(a.context.progress_timeout(), Some(Duration::ZERO), "there is more to send");
    let start = StdInstant::now();
    while a.cq.poll_one().is_none() {
        assert!(start.elapsed() < PATIENCE);
    }
    let log = throttle.log.lock().unwrap().clone();
    let bursts = log.split(|step| *step == Step::Received).map(|burst| {
        burst.iter().map(|step| if let Step::Sent(bytes) = step { *bytes } else { 0 }).sum()
    });
    let bursts: Vec<usize> = bursts.filter(|bytes| *bytes > 0).collect();
    assert!(bursts.iter().all(|bytes| *bytes <= BUFFER), "{bursts:?}");
    assert!(bursts.len() >= 4, "{bursts:?}");
}

/// Nothing is lost, repeated or reordered. Only the device's thread drives the link.
#[test]
fn what_a_full_link_does_not_take_goes_later_and_in_order() {
    for shows_room in [true, false] {
        let throttle = Throttle::new(0, shows_room, Duration::ZERO);
        let (a, b) = sides(&throttle, OpenOptions::default());
        connect(&a, &b);
        let data = noise(300_000, 7);
        a.memory.write_at(0, &data).unwrap();
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..data.len()))])
            .unwrap();
        let start = StdInstant::now();
        while b.memory.to_vec(0..data.len()).unwrap() != data {
            assert!(start.elapsed() < PATIENCE, "{:?}", a.context.link_counters());
            throttle.grant(1);
            thread::sleep(Duration::from_millis(1));
        }
        throttle.grant(1000);
        a.next().result.unwrap();
        let (near, far) = (a.context.counters(), b.context.counters());
        assert!(throttle.count(|step| *step == Step::Full) > 0);
        assert!(a.context.link_counters().full > 0);
        assert_eq!((a.context.link_counters().send_errors, far.sequence_naks_sent), (0, 0));
        assert!(near.retransmitted_packets == 0 || near.timeouts + near.tail_probes > 0);
    }
}

#[test]
fn by_hand_the_descriptor_tells_when_a_full_link_has_room() {
    let throttle = Throttle::new(1, true, Duration::ZERO);
    let (a, b) = sides(&throttle, manual());
    connect(&a, &b);
    let data = noise(400_000, 8);
    a.memory.write_at(0, &data).unwrap();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..data.len()))]).unwrap();
    a.context.progress();
    while readable(a.context.progress_fd()) {
        a.context.progress(); // earlier arrivals
    }
    assert_ne!(a.context.progress_timeout(), Some(Duration::ZERO), "it need not be asked again");
    throttle.grant(1);
    assert!(readable(a.context.progress_fd()));
    throttle.grant(usize::MAX / 2);
    let start = StdInstant::now();
    let completed = loop {
        if let Some(wc) = a.cq.poll_one() {
            break wc;
        }
        assert!(start.elapsed() < PATIENCE);
        sleep_on(&a.context);
        a.context.progress();
    };
    completed.result.unwrap();
    assert!(b.memory.to_vec(0..data.len()).unwrap() == data);
    assert!(!readable(a.context.progress_fd()), "a link that has room is not waited for");
}

#[test]
fn what_is_left_of_a_turn_goes_by_itself() {
    let throttle = Throttle::new(usize::MAX, true, Duration::ZERO);
    let (a, b) = sides(&throttle, OpenOptions::default());
    connect_without_timers(&a, &b);
    let data = noise(1 << 20, 9);
    for round in 0..20 {
        a.memory.write_at(0, &data).unwrap();
        b.memory.fill(0).unwrap();
        if round % 2 == 0 {
            let _ = a.cq.poll_one(); // the background thread stands by for a while
        } else {
            thread::sleep(Duration::from_millis(10)); // it sleeps
        }
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..data.len()))])
            .unwrap();
        let start = StdInstant::now();
        while b.memory.to_vec(data.len() - 1..data.len()).unwrap() != data[data.len() - 1..] {
            assert!(start.elapsed() < PATIENCE, "{:?}", a.context.counters());
            thread::sleep(Duration::from_millis(1));
        }
        a.next().result.unwrap();
    }
}

#[test]
fn what_is_left_of_a_turn_goes_while_its_program_sleeps() {
    let throttle = Throttle::new(usize::MAX, true, Duration::ZERO);
    let (a, b) = sides(&throttle, OpenOptions::default());
    connect_without_timers(&a, &b);
    for _ in 0..20 {
        a.cq.req_notify(roce::NotifyKind::Next);
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..1 << 20))]).unwrap();
        a.channel.wait(Some(PATIENCE)).unwrap();
        a.next().result.unwrap();
    }
}

/// A READ response fills many buffers on a slow link. A call at the responder is served in between.
#[test]
fn a_call_gets_in_while_a_long_response_is_sent() {
    const LENGTH: usize = 16 << 20;
    let throttle = Throttle::new(usize::MAX, true, Duration::from_millis(1));
    let (responder, requester) = sides(&throttle, OpenOptions::default());
    connect(&responder, &requester);
    let far = responder.memory.domain().allocate(LENGTH, Access::REMOTE_READ).unwrap();
    let near = requester.memory.domain().allocate(LENGTH, Access::LOCAL_WRITE).unwrap();
    let sent = || throttle.count(|step| matches!(step, Step::Sent(_)));
    // runs sent before the call returns, and all
    let call = || {
        throttle.log.lock().unwrap().clear();
        requester.qp.post_send(&[SendWr::read(1, far.remote(0), near.sge_all())]).unwrap();
        let start = StdInstant::now();
        while sent() < 2 {
            assert!(start.elapsed() < PATIENCE);
            thread::yield_now();
        }
        let before = sent();
        let _ = responder.context.random_psn();
        let during = sent() - before;
        requester.next().result.unwrap();
        (during, sent())
    };
    // a call may have waited for the processor
    let calls = [call(), call(), call()];
    assert!(calls.iter().any(|(during, total)| *during < total / 4), "{calls:?}");
}

/// The link soon gets this room. True if the device sent.
fn closes_with_last_words(room: usize) -> bool {
    let throttle = Throttle::new(0, true, Duration::ZERO);
    let (a, b) = sides(&throttle, manual());
    connect(&a, &b);
    b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge_all()])]).unwrap();
    a.memory.write_at(0, b"last words").unwrap();
    a.qp.post_send(&[SendWr::send(1, a.memory.sge(0..10))]).unwrap();
    let granted = throttle.clone();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(10));
        granted.grant(room);
    });
    let start = StdInstant::now();
    drop(a);
    assert!(start.elapsed() < Duration::from_secs(2));
    later.join().unwrap();
    let sent = throttle.count(|step| matches!(step, Step::Sent(_))) > 0;
    if sent {
        b.next().result.unwrap();
        assert_eq!(b.memory.to_vec(0..10).unwrap(), b"last words");
    }
    sent
}

#[test]
fn a_device_that_closes_waits_for_a_full_link_but_not_long() {
    // on a busy machine the room may come too late
    assert!((0..5).any(|_| closes_with_last_words(1000)));
    assert!(!closes_with_last_words(0));
}

/// Joins groups when the test allows it.
struct SlowToJoin {
    wire: Wire,
    asked: Sender<()>,
    may_join: Arc<Mutex<Receiver<()>>>,
}

impl Link for SlowToJoin {
    fn addresses(&self) -> Vec<IpAddr> {
        self.wire.addresses()
    }

    fn limits(&self) -> TransmitLimits {
        self.wire.limits()
    }

    fn source_port(&self) -> SourcePort {
        self.wire.source_port()
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        self.wire.send(now, bytes, runs)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        self.wire.receive(now, sink)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.wire.descriptors()
    }

    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        Some(self)
    }
}

impl MulticastLink for SlowToJoin {
    fn prepare_join(&mut self, _: IpAddr) -> Preparation<io::Error> {
        let (asked, may_join) = (self.asked.clone(), self.may_join.clone());
        Box::new(move || {
            asked.send(()).unwrap();
            let told = may_join.lock().unwrap().recv_timeout(PATIENCE);
            told.map_err(|_| io::ErrorKind::TimedOut)?;
            Ok(Box::new(()))
        })
    }

    fn join(&mut self, _: IpAddr, _: Prepared) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self, _: IpAddr) -> Option<Prepared> {
        None
    }
}

#[test]
fn no_call_waits_while_a_group_is_joined() {
    let [near, _far] = wire();
    let ((asked, is_asked), (allow, may_join)) = (channel(), channel());
    let link = SlowToJoin { wire: near, asked, may_join: Arc::new(Mutex::new(may_join)) };
    let context = open(link, OpenOptions::default());
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4, None).unwrap());
    let create = || pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
    let (first, second) = (create(), create());
    let group = IpAddr::from([239, 1, 1, 1]).into();
    thread::scope(|scope| {
        let joining = scope.spawn(|| first.attach_mcast(group));
        is_asked.recv_timeout(PATIENCE).unwrap();
        let _ = (context.query_port(), create(), cq.poll_one());
        let later = scope.spawn(|| second.attach_mcast(group));
        allow.send(()).unwrap();
        joining.join().unwrap().unwrap();
        later.join().unwrap().unwrap();
    });
    assert!(is_asked.try_recv().is_err(), "the device joins once");
}
