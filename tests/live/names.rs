//! Untrusted processes hold names of addresses.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

use super::*;

const INSIDE: &str = "ROCE_TEST_NAMES";
const TEST: &str = "live::names::held_names_keep_nobody_from_the_loopback_device";
const READY: &str = "ready";

/// Never accepts or ends.
fn hold_names() {
    let sockets = (1..255).map(|last| {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let name =
            SocketAddrUnix::new_abstract_name(format!("roce 4791 127.0.0.{last}").as_bytes());
        bind(&socket, &name.unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        socket
    });
    let _sockets: Vec<_> = sockets.collect();
    println!("\n{READY}");
    let _ = std::io::stdin().lines().next(); // until the test ends
}

fn open_beside_held_names() {
    let own = env::current_exe().unwrap();
    let mut holder = Command::new("unshare")
        .arg("--user")
        .arg(own)
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, "hold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == READY));
    let (a, b) = pair();
    assert_ne!(a.context.gids(), b.context.gids());
    a.memory.write_at(0, b"by the network").unwrap();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..14))]).unwrap();
    a.next().result.unwrap();
    assert_eq!(b.memory.to_vec(0..14).unwrap(), b"by the network");
    assert_eq!(a.context.link_counters().shared_runs, 0);
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// Another user namespace is as foreign as another user. The network namespace hides its names from
/// other tests.
#[test]
fn held_names_keep_nobody_from_the_loopback_device() {
    match env::var(INSIDE).as_deref() {
        Ok("hold") => return hold_names(),
        Ok(_) => return open_beside_held_names(),
        Err(_) => {}
    }
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", script]);
        command.arg(env::current_exe().unwrap()).env(INSIDE, "open");
        command
    };
    let possible = unshared("ip link set lo up && unshare --user true").output();
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        assert!(env::var_os("ROCE_NAMESPACES").is_none(), "no namespace can be made: {possible:?}");
        eprintln!("no network namespace can be made here: left to CI");
        return;
    }
    let script =
        format!("ip link set lo up && exec \"$0\" --exact {} --nocapture", own_test::named(TEST));
    assert!(unshared(&script).status().unwrap().success(), "inside the namespace");
}
