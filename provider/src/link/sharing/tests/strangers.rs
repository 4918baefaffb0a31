//! Other users' processes that send descriptors that are slow to close. Each test has its own
//! process, since one thread closes for a whole process.

use std::{
    env,
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use super::{
    super::listener::{ACCEPT_BACKOFF, ACCEPT_BATCH},
    *,
};
use crate::{
    link::{
        Link, Locality, SocketOptions, UdpLink,
        stranger::{self, MAX_STRANGERS, Unchecked},
    },
    own_test,
};

/// Time of a close that waits.
const LINGER: Duration = Duration::from_secs(30);
const OTHER: u32 = 65_532;
const INSIDE: &str = "ROCE_TEST_STRANGERS";

/// Runs a test in its own process, which must end at once, too. Only root can start other users'
/// programs.
fn alone(test: &str, run: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("programs of other users can be started by root only: left to CI");
        return;
    }
    if env::var_os(INSIDE).is_some() {
        return run();
    }
    let name = format!("link::sharing::tests::strangers::{test}");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", own_test::named(&name), "--nocapture"]).env(INSIDE, "1");
    let start = std::time::Instant::now();
    assert!(command.status().unwrap().success());
    assert!(start.elapsed() < LINGER / 2, "it does not end");
}

/// Asserts that nothing waits for a close.
fn soon<T>(act: impl FnOnce() -> T) -> T {
    let start = std::time::Instant::now();
    let result = act();
    assert!(start.elapsed() < LINGER / 10, "{:?}", start.elapsed());
    result
}

/// Ends with this process, or when dropped.
struct Stranger {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Stranger {
    fn start(user: u32, mode: &str, name: &str, count: usize) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hostile/linger.py");
        let mut command = Command::new("python3");
        command.arg(script).args([&user.to_string(), mode, name, &count.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stranger = Self { child, says };
        stranger.hear();
        stranger
    }

    fn hear(&mut self) -> String {
        self.says.next().expect("it has ended").unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn denied<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

// No test starts a process while a stranger's socket is open: the child would have a copy.

#[test]
fn who_connects_makes_nobody_wait() {
    alone("who_connects_makes_nobody_wait", || {
        let (mut a, mut b, ends) = pair();
        let [src, dst] = ends;
        let stranger = Stranger::start(OTHER, "connect", &of_address(dst, 0), 1);
        soon(|| b.round(at(2000)));
        a.send(at(2001), b"data", &[run(ends, 4, 0..4)]).unwrap().unwrap();
        assert_eq!(soon(|| take(&mut b)), [(src, 0, b"data".into())]);
        // this process ends while the close waits
        std::mem::forget(stranger);
    });
}

#[test]
fn a_name_that_goes_waits_for_nobody() {
    alone("a_name_that_goes_waits_for_nobody", || {
        let [_, address] = addresses();
        let b = device(address);
        let stranger = Stranger::start(OTHER, "connect", &of_address(address, 0), 2);
        soon(|| drop(b));
        drop(soon(|| device(address))); // free at once
        std::mem::forget(stranger);
    });
}

#[test]
fn the_last_that_has_a_name_ends_it() {
    alone("the_last_that_has_a_name_ends_it", || {
        let [address, _] = addresses();
        let mut a = owner(address);
        let b = peer(&mut a, address).unwrap();
        let _stranger = Stranger::start(OTHER, "connect", &of_address(address, 0), 1);
        soon(|| drop(a));
        assert!(connect(&of_address(address, 0)).is_ok());
        soon(|| drop(b));
        drop(soon(|| device(address)));
    });
}

#[test]
fn who_has_a_name_makes_nobody_wait() {
    alone("who_has_a_name_makes_nobody_wait", || {
        let [src, dst] = addresses();
        let mut stranger = Stranger::start(OTHER, "listen", &of_address(dst, 0), 0);
        let _other = Stranger::start(OTHER, "listen", &format!("{} #0", of_address(dst, 0)), 0);
        let unchecked = Unchecked::connect(of_address(dst, 0).as_bytes()).unwrap();
        assert_eq!(stranger.hear(), "sent");
        assert!(denied(soon(|| unchecked.check())));
        let mut a = device(src);
        assert!(!soon(|| reaches(&mut a, at(0), [src, dst], ANY)));
        let error = soon(|| acquire_for(&mut a, dst, &taken())).unwrap_err();
        assert!(matches!(error, BindError::Taken(_)), "{error}");
        let mut b = Sharing::new(SHARED).unwrap();
        let error = soon(|| acquire_for(&mut b, dst, &taken())).unwrap_err();
        assert!(matches!(error, BindError::OtherUser { user: OTHER, .. }), "{error}");
    });
}

#[test]
fn a_loopback_address_with_a_name_of_others_is_left_to_them() {
    alone("a_loopback_address_with_a_name_of_others_is_left_to_them", || {
        let own = [66, 67].map(|last| IpAddr::from([127, 79, 66, last]));
        let _stranger = Stranger::start(OTHER, "listen", &of_address(own[0], 0), 0);
        let _taken = UdpSocket::bind((own[0], ROCE_UDP_PORT)).unwrap();
        let (locality, options) = (Locality::Network, SocketOptions::default());
        let link = UdpLink::bind_first(own.into_iter(), None, locality, options).unwrap();
        assert_eq!(link.addresses(), own[1..]);
    });
}

#[test]
fn who_connects_to_a_reaper_makes_it_not_wait() {
    alone("who_connects_to_a_reaper_makes_it_not_wait", || {
        let mut members = Members::new().unwrap();
        let name = members.variable.rsplit_once(' ').unwrap().0.to_owned();
        // an ended process of this user could be the program's
        let strangers = [(OTHER, "connect"), (0, "leave"), (OTHER, "leave")];
        let strangers = strangers.map(|(user, mode)| Stranger::start(user, mode, &name, 2));
        assert!(soon(|| members.attend(at(0))).is_empty());
        assert_eq!(members.descriptors().len(), 1);
        soon(|| drop(members));
        std::mem::forget(strangers);
    });
}

/// At the limit, nobody is accepted, and connections go on.
#[test]
fn strangers_that_wait_are_bounded() {
    alone("strangers_that_wait_are_bounded", || {
        let (mut a, mut b, ends) = pair();
        let [src, dst] = ends;
        let crowd = Stranger::start(OTHER, "connect", &of_address(dst, 0), MAX_STRANGERS + 20);
        let rounds = (MAX_STRANGERS / ACCEPT_BATCH) as u64;
        soon(|| (1..=rounds).for_each(|round| b.round(at(1000 * round))));
        assert!(stranger::is_full());
        let mut now = 1000 * (rounds + 1);
        b.round(at(now));
        assert_eq!(b.deadline(), Some(at(now).plus(ACCEPT_BACKOFF)));
        assert!(!b.descriptors().into_iter().any(crate::readiness::is_readable), "it sleeps");
        assert!(denied(connect(&of_address(dst, 0))), "nobody is connected to");
        a.send(at(now), b"data", &[run(ends, 4, 0..4)]).unwrap().unwrap();
        assert_eq!(soon(|| take(&mut b)), [(src, 0, b"data".into())]);
        drop(crowd);
        while stranger::is_full() {
            thread::sleep(Duration::from_millis(1));
        }
        let other = [src, dst].map(|address| match address {
            IpAddr::V4(v4) => IpAddr::from([v4.octets()[0], 0, 0, v4.octets()[3]]),
            IpAddr::V6(_) => address,
        })[0];
        let mut c = device(other);
        while !reaches(&mut c, at(now), [other, dst], ANY) {
            now += 100_000;
            b.round(at(now));
            c.round(at(now));
        }
    });
}
