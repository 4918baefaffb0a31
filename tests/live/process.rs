use std::{fs, thread};

use super::*;
use crate::forked::{fork, wait};

fn write(from: &Side, to: &Side, text: &[u8]) {
    from.memory.write_at(0, text).unwrap();
    from.qp
        .post_send(&[SendWr::write(1, to.memory.remote(64), from.memory.sge(0..text.len()))])
        .unwrap();
    assert!(from.next().result.is_ok());
    assert_eq!(to.memory.to_vec(64..64 + text.len()).unwrap(), text);
}

/// The number names the failure.
fn child(inherited: (Side, Side)) -> i32 {
    if [&inherited.0, &inherited.1].iter().any(|side| side.context.is_of_this_process()) {
        return 1;
    }
    // The child must not send for its parent's connection.
    let (a, b) = &inherited;
    if a.qp.post_send(&[SendWr::write(2, b.memory.remote(0), a.memory.sge(0..8))]).is_err()
        || a.cq.poll_one().is_some()
    {
        return 2;
    }
    drop(inherited);
    let own = pair();
    if [&own.0, &own.1].iter().any(|side| !side.context.is_of_this_process()) {
        return 3;
    }
    write(&own.0, &own.1, b"child");
    0
}

#[test]
fn a_fork_leaves_the_parent_its_connections_and_the_child_can_open_its_own() {
    let sides = pair();
    write(&sides.0, &sides.1, b"before");
    let mut sides = Some(sides); // only the child drops them
    let pid = fork(|| child(sides.take().unwrap()));
    let sides = sides.unwrap();
    for _ in 0..1000 {
        write(&sides.0, &sides.1, b"parent");
    }
    let status = wait(pid);
    assert!(status.success(), "where the child failed: {status}");
    for side in [&sides.0, &sides.1] {
        assert_nothing_dropped(&side.context);
    }
    write(&sides.1, &sides.0, b"after");
}

fn blocked_by(name: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // perhaps ended
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let value =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        if value("Name:") == Some(name) {
            found.extend(value("SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok()));
        }
    }
    found
}

#[test]
fn the_programs_signals_do_not_go_to_our_threads() {
    let _device = loopback(OpenOptions::default());
    let deadline = Instant::now() + PATIENCE;
    let masks = loop {
        let masks = blocked_by("roce"); // a thread names itself
        if !masks.is_empty() || Instant::now() > deadline {
            break masks;
        }
        thread::yield_now();
    };
    let has = |mask: u64, signal: i32| mask & 1 << (signal - 1) != 0;
    assert!(!masks.is_empty());
    for mask in masks {
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGALRM,
            libc::SIGUSR1,
            libc::SIGCHLD,
            libc::SIGPROF,
        ] {
            assert!(has(mask, signal), "signal {signal} is for the program");
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            assert!(!has(mask, signal), "signal {signal} tells of the thread's own fault");
        }
    }
}

/// Another program has the device's addresses.
#[test]
fn a_device_that_is_opened_without_its_network_is_down() {
    let device = Device::named("roce_lo").unwrap();
    let owner = device.open(OpenOptions::default()).unwrap();
    let context = device.open_down(OpenOptions::default()).unwrap();
    assert!(
        !context.query_port().active
            && context.query_port().active_mtu == owner.query_port().active_mtu
    );
    assert_eq!((context.gids(), context.query_gid_table().len()), (Vec::new(), 0));
    assert_eq!(context.name(), owner.name());
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(1, None).unwrap();
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    let peer = Side::on(loopback(OpenOptions::default())).qp.endpoint(0).unwrap();
    assert!(
        matches!(qp.connect_to(peer), Err(roce::ConnectError::NoAddress(gid)) if gid == peer.gid)
    );
}
