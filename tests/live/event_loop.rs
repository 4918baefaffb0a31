//! Programs that wait for a channel in an event loop.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Events taken without waiting before arrivals wake a program.
const OFTEN: u32 = 64;

struct Looping(Side);

impl Looping {
    /// Armed.
    fn new(side: Side) -> Self {
        (0..OFTEN).for_each(|_| side.channel.count_use(|| true));
        let looping = Self(side);
        looping.arm();
        looping
    }

    fn arm(&self) {
        self.0.cq.req_notify(NotifyKind::Next);
    }

    fn is_woken_within(&self, limit: Duration) -> bool {
        let descriptor = self.0.channel.as_fd();
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::try_from(limit).unwrap())).unwrap() == 1
    }

    /// A program may treat a missing event as an error.
    fn sleep(&self) {
        assert!(self.is_woken_within(PATIENCE), "counters: {:?}", self.0.context.counters());
        let channel = &self.0.channel;
        let has_event = channel.poll().or_else(|| channel.serve()).is_some();
        assert!(has_event, "counters: {:?}", self.0.context.counters());
        self.arm();
    }

    /// Arms the queue before polling, as programs must.
    fn next(&self) -> Wc {
        loop {
            if let Some(wc) = self.0.cq.poll_one() {
                return wc;
            }
            self.sleep();
        }
    }
}

/// Between requests go WRITEs without completion at the peer.
fn converse(options: impl Fn() -> OpenOptions) {
    let (a, b) = (Side::on(loopback(options())), Side::on(loopback(options())));
    connect(&a, &b);
    let (a, b) = (Looping::new(a), Looping::new(b));
    let receive = |side: &Looping, id| {
        side.0.qp.post_recv(&[RecvWr::new(id, [side.0.memory.sge(0..8)])]).unwrap();
    };
    let send = |side: &Looping, id| {
        side.0.qp.post_send(&[SendWr::send(id, side.0.memory.sge(8..16))]).unwrap();
    };
    let rounds = 300;
    receive(&a, 0);
    receive(&b, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut answered = 0;
            while answered < rounds {
                let wc = b.next();
                wc.result.as_ref().unwrap();
                if wc.wr_id == answered {
                    answered += 1;
                    receive(&b, answered);
                    send(&b, 1000 + answered);
                }
            }
        });
        for round in 0..rounds {
            for _ in 0..round % 3 {
                let target = b.0.memory.remote(64);
                let write = SendWr::write(2000, target, a.0.memory.sge(16..2000));
                a.0.qp.post_send(&[write]).unwrap();
            }
            send(&a, 1000);
            while a.next().wr_id != round {}
            receive(&a, round + 1);
        }
    });
}

#[test]
fn who_is_woken_finds_an_event() {
    for sockets_only in [false, true] {
        converse(|| OpenOptions { sockets_only, ..OpenOptions::default() });
    }
}

#[test]
fn who_is_woken_finds_an_event_though_packets_are_lost() {
    converse(|| OpenOptions {
        faults: "drop 2%, duplicate 2%".parse().unwrap(),
        fault_seed: 11,
        ..OpenOptions::default()
    });
}

#[test]
fn what_arrives_for_a_busy_program_is_served() {
    let (a, b) = pair();
    let b = Looping::new(b);
    for round in 0..20_u64 {
        b.arm();
        a.memory.store_u64(0, round).unwrap();
        a.qp.post_send(&[SendWr::write(round, b.0.memory.remote(8), a.memory.sge(0..8))]).unwrap();
        a.next().result.unwrap();
        assert_eq!(b.0.memory.load_u64(8).unwrap(), round);
    }
}

/// Arrivals without completions are finally left to the device.
#[test]
fn a_program_that_is_woken_in_vain_is_woken_no_more() {
    let (a, b) = pair();
    let b = Looping::new(b);
    let mut round = 0;
    loop {
        a.memory.store_u64(0, round).unwrap();
        a.qp.post_send(&[SendWr::write(round, b.0.memory.remote(8), a.memory.sge(0..8))]).unwrap();
        let is_woken = b.is_woken_within(Duration::from_millis(20));
        a.next().result.unwrap();
        assert_eq!(b.0.memory.load_u64(8).unwrap(), round);
        if !is_woken {
            break;
        }
        assert!(round < 10_000, "counters: {:?}", b.0.context.counters());
        b.sleep();
        assert_eq!(b.0.cq.poll_one(), None);
        round += 1;
    }
}

/// Whichever thread receives.
#[test]
fn other_channels_of_the_device_tell_their_events() {
    let context = loopback(OpenOptions::default());
    let b = Looping::new(Side::on(context.clone()));
    let other = Looping::new(Side::on(context));
    let peer = Side::on(loopback(OpenOptions::default()));
    connect(&peer, &other.0);
    for round in 0..50 {
        other.0.qp.post_recv(&[RecvWr::new(round, [other.0.memory.sge(0..8)])]).unwrap();
        peer.qp.post_send(&[SendWr::send(round, peer.memory.sge(0..8))]).unwrap();
        let start = Instant::now();
        while !other.is_woken_within(Duration::from_millis(1)) {
            assert!(start.elapsed() < PATIENCE);
            if b.is_woken_within(Duration::ZERO) {
                b.sleep();
            }
        }
        assert_eq!(other.next().wr_id, round);
        peer.next().result.unwrap();
    }
}

#[test]
fn a_thread_that_waits_beside_an_event_loop_is_woken() {
    let context = loopback(OpenOptions::default());
    let looping = Looping::new(Side::on(context.clone()));
    let waiting = Side::on(context);
    let (a, b) =
        (Side::on(loopback(OpenOptions::default())), Side::on(loopback(OpenOptions::default())));
    connect(&a, &looping.0);
    connect(&b, &waiting);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if looping.is_woken_within(Duration::from_millis(2)) {
                    looping.sleep();
                    while looping.0.cq.poll_one().is_some() {}
                }
            }
        });
        for round in 0..100 {
            looping.0.qp.post_recv(&[RecvWr::new(round, [looping.0.memory.sge(0..8)])]).unwrap();
            waiting.qp.post_recv(&[RecvWr::new(round, [waiting.memory.sge(0..8)])]).unwrap();
            waiting.cq.req_notify(NotifyKind::Next);
            a.qp.post_send(&[SendWr::send(round, a.memory.sge(0..8))]).unwrap();
            b.qp.post_send(&[SendWr::send(round, b.memory.sge(0..8))]).unwrap();
            waiting.channel.wait(Some(PATIENCE)).unwrap();
            assert_eq!(waiting.next().wr_id, round);
            a.next().result.unwrap();
            b.next().result.unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A program that armed nothing since its last event sleeps through arrivals.
#[test]
fn who_has_armed_nothing_is_not_woken() {
    let (a, b) = pair();
    let b = Looping::new(b);
    let channel = &b.0.channel;
    for round in 0..30 {
        b.0.qp.post_recv(&[RecvWr::new(round, [b.0.memory.sge(0..8)])]).unwrap();
        a.qp.post_send(&[SendWr::send(round, a.memory.sge(0..8))]).unwrap();
        assert!(b.is_woken_within(PATIENCE));
        assert!(channel.poll().or_else(|| channel.serve()).is_some());
        for _ in 0..3 {
            let write = SendWr::write(round, b.0.memory.remote(8), a.memory.sge(0..8));
            a.qp.post_send(&[write]).unwrap();
        }
        assert!(!b.is_woken_within(Duration::from_millis(3)));
        b.arm();
        assert_eq!(b.next().wr_id, round);
        (0..4).for_each(|_| _ = a.next().result.unwrap());
    }
}

/// Each wake-up has an event of one queue.
#[test]
fn queues_that_share_a_channel() {
    let context = loopback(OpenOptions::default());
    let (pd, channel) = (context.alloc_pd().unwrap(), context.create_channel().unwrap());
    let memory = pd.allocate(1 << 12, ALL).unwrap();
    (0..OFTEN).for_each(|_| channel.count_use(|| true));
    let other = loopback(OpenOptions::default());
    let ends: Vec<_> = (0..5)
        .map(|_| {
            let cq = context.create_cq(64, Some(&channel)).unwrap();
            let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
            let peer = Side::on(other.clone());
            let (near, far) = (qp.endpoint(0).unwrap(), peer.qp.endpoint(0).unwrap());
            qp.connect_to(far).unwrap();
            peer.qp.connect_to(near).unwrap();
            for _ in 0..60 {
                qp.post_recv(&[RecvWr::new(1, [memory.sge(0..8)])]).unwrap();
            }
            cq.req_notify(NotifyKind::Next);
            (cq, qp, peer)
        })
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60 {
                for (index, (_, _, peer)) in ends.iter().enumerate() {
                    let local = peer.memory.sge(0..8);
                    if (round + index) % 2 == 0 {
                        let write = SendWr::write(2, memory.remote(8 * index), local);
                        peer.qp.post_send(&[write]).unwrap();
                        peer.next().result.unwrap();
                    }
                    peer.qp.post_send(&[SendWr::send(3, peer.memory.sge(0..8))]).unwrap();
                    peer.next().result.unwrap();
                }
            }
        });
        let mut received = 0;
        while received < 300 {
            let descriptor = channel.as_fd();
            let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
            let limit = Timespec::try_from(PATIENCE).unwrap();
            assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "{received}");
            let event = channel.poll().or_else(|| channel.serve());
            let cq = event.expect("an event");
            cq.req_notify(NotifyKind::Next);
            while let Some(wc) = cq.poll_one() {
                wc.result.unwrap();
                received += 1;
            }
        }
    });
}
