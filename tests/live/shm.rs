//! Devices of one host, with and without the network stack.

use std::sync::{Arc, Mutex};

use roce::{
    link::{Observed, Observer},
    transport::wire::verify_icrc,
};

use super::{sharing::send, *};

fn side(sockets_only: bool) -> Side {
    Side::on(loopback(OpenOptions { sockets_only, ..OpenOptions::default() }))
}

fn shared_runs(side: &Side) -> u64 {
    side.context.link_counters().shared_runs
}

fn exchange(a: &Side, b: &Side, round: usize) {
    let size = [1, 64, 4097, 200_000][round % 4];
    for (from, to) in [(a, b), (b, a)] {
        send(from, to, &noise(size, round as u32 + 1));
    }
}

#[test]
fn devices_of_one_host_change_to_shared_memory_and_lose_nothing() {
    let (a, b) = (side(false), side(false));
    connect(&a, &b);
    let start = Instant::now();
    let mut round = 0;
    while round < 400 || shared_runs(&a) < 100 || shared_runs(&b) < 100 {
        exchange(&a, &b, round);
        round += 1;
        assert!(start.elapsed() < PATIENCE, "{:?}", a.context.link_counters());
    }
    for side in [&a, &b] {
        assert_eq!(side.context.link_counters().send_errors, 0);
        assert!(side.context.counters().icrc_trusted > 100);
        assert_nothing_dropped(&side.context);
    }
}

#[test]
fn sockets_only_keeps_to_the_network_stack() {
    let (a, b) = (side(true), side(false));
    connect(&a, &b);
    for round in 0..200 {
        exchange(&a, &b, round);
    }
    assert_eq!((shared_runs(&a), shared_runs(&b)), (0, 0));
    assert_eq!((a.context.counters().icrc_trusted, b.context.counters().icrc_trusted), (0, 0));
}

/// A device that injects faults checks all arrivals, and its packets are checked.
#[test]
fn corruption_is_found_over_shared_memory_too() {
    let options = || OpenOptions {
        faults: "corrupt 2% rx".parse().unwrap(),
        fault_seed: 3,
        ..OpenOptions::default()
    };
    let (a, b) = (Side::on(loopback(options())), side(false));
    connect(&a, &b);
    let start = Instant::now();
    let mut round = 0;
    while round < 100 || shared_runs(&b) < 100 {
        exchange(&a, &b, round);
        round += 1;
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(a.context.counters().dropped(DropReason::Icrc) > 0);
    assert_eq!(
        b.context.counters().icrc_trusted,
        0,
        "packets that leave with faults are not marked as verified"
    );
}

#[derive(Clone, Debug, Default)]
struct Icrcs(Arc<Mutex<Vec<bool>>>);

impl Observer for Icrcs {
    fn observe(&mut self, observed: &Observed<'_>) {
        self.0.lock().unwrap().push(verify_icrc(observed.net, observed.bytes).is_some());
    }
}

/// Only for observers, at either end.
#[test]
fn who_observes_sees_icrcs() {
    let icrcs = Icrcs::default();
    let observer = Some(Box::new(icrcs.clone()) as Box<dyn Observer>);
    let observing = Side::on(loopback(OpenOptions { observer, ..OpenOptions::default() }));
    let other = side(false);
    connect(&observing, &other);
    let start = Instant::now();
    let mut round = 0;
    while shared_runs(&observing) < 100 || shared_runs(&other) < 100 {
        exchange(&observing, &other, round);
        round += 1;
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(observing.context.counters().icrc_trusted > 0);
    let icrcs = icrcs.0.lock().unwrap();
    assert!(icrcs.len() > 100 && icrcs.iter().all(|right| *right));
}

#[test]
fn an_address_with_another_device_behind_it() {
    let address = own_address();
    let open = || {
        let device = Device::named(&format!("udp:{address}")).unwrap();
        Side::on(device.open(OpenOptions::default()).unwrap())
    };
    let here = side(false);
    for _ in 0..4 {
        let (a, b) = (Side::on(here.context.clone()), open());
        connect(&a, &b);
        let before = shared_runs(&a);
        let start = Instant::now();
        let mut round = 0;
        while shared_runs(&a) < before + 50 {
            exchange(&a, &b, round);
            round += 1;
            assert!(start.elapsed() < PATIENCE);
        }
    }
}

#[test]
fn sleeping_threads_are_woken_over_shared_memory() {
    let (a, b) = (side(false), side(false));
    connect(&a, &b);
    let start = Instant::now();
    while shared_runs(&a) == 0 || shared_runs(&b) == 0 {
        exchange(&a, &b, 0);
        assert!(start.elapsed() < PATIENCE);
    }
    const MESSAGES: u64 = 2000;
    let post_recv =
        |side: &Side| side.qp.post_recv(&[RecvWr::new(0, [side.memory.sge(0..64)])]).unwrap();
    let send =
        |side: &Side| side.qp.post_send(&[SendWr::send(0, side.memory.sge(64..128))]).unwrap();
    let response = |side: &Side| {
        let (mut sent, mut received) = (0, 0);
        while sent < MESSAGES || received < MESSAGES {
            side.cq.req_notify(NotifyKind::Next);
            let mut found = false;
            while let Some(wc) = side.cq.poll_one() {
                found = true;
                if wc.result.unwrap().opcode != roce::WcOpcode::Recv {
                    sent += 1;
                    continue;
                }
                received += 1;
                post_recv(side);
                if received < MESSAGES || side.qp.qpn() == b.qp.qpn() {
                    send(side);
                }
            }
            if !found {
                side.channel.wait(Some(PATIENCE)).unwrap();
            }
        }
    };
    for side in [&a, &b] {
        post_recv(side);
        post_recv(side);
    }
    send(&a);
    std::thread::scope(|scope| {
        scope.spawn(|| response(&a));
        response(&b);
    });
}
