//! Needs root.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, IoSliceMut, Read},
    mem::MaybeUninit,
    net::{Ipv4Addr, UdpSocket},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::PermissionsExt, net::UnixDatagram, process::CommandExt},
    },
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use tempfile::TempDir;

use crate::running::Running;

const PATIENCE: Duration = Duration::from_secs(30);
const ROOT: u32 = 0;
const ONE: u32 = 65_532;
const OTHER: u32 = 65_533;

struct Tool(TempDir);

impl Tool {
    /// `None`: not root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("programs of other users can be started by root only: left to CI");
            return None;
        }
        crate::watchdog::start(String::new);
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        // Another process copies: a child of a parallel test could inherit a writable descriptor
        // (ETXTBSY).
        let mut copy = Command::new("cp");
        let copied = copy.arg(env!("CARGO_BIN_EXE_roce")).arg(directory.path()).status();
        assert!(copied.unwrap().success());
        Some(Self(directory))
    }

    fn by(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.path().join("roce"));
        command.args(arguments).uid(user).gid(user).env("ROCE_LOG", "info").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn share(&self, user: u32, device: &str) -> Running {
        Self::shared(&mut self.by(user, &["share", device]), device)
    }

    fn shared(command: &mut Command, device: &str) -> Running {
        let (running, line) = Running::start(command);
        assert_eq!(line, format!("{device}: {}\n", device.replace("udp:", "")));
        running
    }
}

fn ended(program: &mut Running) -> Option<String> {
    program.0.try_wait().unwrap()?;
    let mut error = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    Some(error)
}

fn end(child: Child) -> Output {
    crate::watchdog::programs::wait_with_output(child, PATIENCE)
}

fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20));
    }
}

fn until_bound(address: &str) {
    let address: Ipv4Addr = address.parse().unwrap();
    let bound = format!(" {:08X}:12B7 ", u32::from_ne_bytes(address.octets()));
    until(|| fs::read_to_string("/proc/net/udp").unwrap().contains(&bound));
}

/// Retries a client until its server listens; both must succeed.
fn play(mut server: Command, mut client: Command) {
    let mut server = server.spawn().unwrap();
    let start = Instant::now();
    loop {
        let output = end(client.spawn().unwrap());
        if output.status.success() {
            break;
        }
        let error = String::from_utf8_lossy(&output.stderr);
        if !error.contains("start the server there first") || start.elapsed() > PATIENCE {
            let _ = server.kill();
            panic!("client: {error}server: {:?}", server.wait_with_output().unwrap());
        }
        sleep(Duration::from_millis(20));
    }
    let server = end(server);
    assert!(server.status.success(), "{server:?}");
}

/// First the client is at another address, then both are at root's.
#[test]
fn programs_of_several_users_are_at_one_address() {
    let Some(tool) = Tool::new() else { return };
    let shared = "udp:127.79.40.1";
    let owner = tool.share(ROOT, shared);
    for device in ["udp:127.79.40.2", shared] {
        let rest = ["-C", "20", "-S", "9000", "--device"];
        let server = [&["rping", "-s", "-a", "127.79.40.1"][..], &rest, &[shared]].concat();
        let client = [&["rping", "-c", "-a", "127.79.40.1"][..], &rest, &[device]].concat();
        play(tool.by(ONE, &server), tool.by(OTHER, &client));
    }
    // large messages
    for test in ["write", "read"] {
        let options = ["-n", "200", "-s", "65536", "-p", "18811", "-d"];
        let server = [&["perf", test][..], &options, &[shared]].concat();
        let client = [&["perf", test][..], &options, &["udp:127.79.40.2", "127.79.40.1"]].concat();
        let listening = tool.by(ONE, &server).spawn().unwrap();
        until(|| end(tool.by(OTHER, &client).spawn().unwrap()).status.success());
        assert!(end(listening).status.success());
    }
    drop(owner);
}

/// Whichever process receives for the address.
#[test]
fn programs_of_one_user_share_memory() {
    let Some(tool) = Tool::new() else { return };
    let shared = "udp:127.79.44.1";
    let owner = tool.share(ROOT, shared);
    let options = ["perf", "write", "-D", "30", "-s", "65536", "-p", "18812", "-d", shared];
    let _server = Running(tool.by(ONE, &options).spawn().unwrap());
    let ask = || Running(tool.by(ONE, &[&options[..], &["127.79.44.1"]].concat()).spawn().unwrap());
    let mut client = ask();
    until(|| {
        if ended(&mut client).is_some() {
            client = ask(); // its server was not ready
        }
        let counters = ["devinfo", "--counters", "--json", "-d", shared];
        let output = end(tool.by(ONE, &counters).spawn().unwrap());
        let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = |name| -> u64 {
            let programs = counters.as_array().unwrap().iter();
            programs.filter_map(|program| program["counters"][name]["value"].as_u64()).sum()
        };
        let (shared, all) = (count("link_shared_runs"), count("link_sent_runs"));
        all > 100 && shared * 10 > all * 9
    });
    drop(owner);
}

#[test]
fn a_service_is_one_programs() {
    let Some(tool) = Tool::new() else { return };
    let shared = "udp:127.79.41.1";
    let owner = tool.share(ROOT, shared);
    let listen = ["rping", "-s", "-a", "127.79.41.1", "-C", "1", "--device", shared];
    let spawn = |user| Running(tool.by(user, &listen).spawn().unwrap());
    let mut programs = [spawn(ONE), spawn(OTHER)];
    let mut refused = None;
    until(|| {
        refused = programs.iter_mut().find_map(ended);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert!(refused.contains("7174") && refused.contains("in use"), "{refused}");
    drop(owner);
}

/// The service is killed and restarted: programs keep their numbers and services.
#[test]
fn connections_outlive_the_service() {
    let Some(tool) = Tool::new() else { return };
    let shared = "udp:127.79.42.1";
    let first = tool.share(ROOT, shared);
    let rest = ["-a", "127.79.42.1", "-C", "4000", "-S", "4000", "--device"];
    let server = [&["rping", "-s"][..], &rest, &[shared]].concat();
    let client = [&["rping", "-v", "-c"][..], &rest, &["udp:127.79.42.2"]].concat();
    let serving = tool.by(ONE, &server).spawn().unwrap();
    let pings = tool.0.path().join("pings");
    let ask = || {
        let stdout = fs::File::create(&pings).unwrap();
        tool.by(OTHER, &client).stdout(stdout).spawn().unwrap()
    };
    let mut asking = ask();
    until(|| {
        if asking.try_wait().unwrap().is_some() {
            asking = ask(); // its server was not ready
        }
        fs::metadata(&pings).unwrap().len() > 0
    });
    drop(first);
    let next = tool.share(ROOT, shared);
    let (asked, served) = (end(asking), end(serving));
    assert!(asked.status.success() && served.status.success(), "{asked:?} {served:?}");
    let log = String::from_utf8_lossy(&served.stderr);
    assert!(log.contains("the service receives for this process again"), "{log}");
    drop(next);
}

#[test]
fn another_user_hears_of_the_service() {
    let Some(tool) = Tool::new() else { return };
    let device = "udp:127.79.43.1";
    let listen = ["rping", "-s", "-a", "127.79.43.1", "--device", device];
    let _first = Running(tool.by(ONE, &listen).spawn().unwrap());
    until_bound("127.79.43.1");
    let perf = ["perf", "write", "--local", "-n", "100", "-s", "4096", "-d", device];
    let output = end(tool.by(OTHER, &perf).spawn().unwrap());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success()
            && error.contains(&format!("of the user {ONE} has port 4791 on 127.79.43.1")),
        "{error}"
    );
    assert!(error.contains("`sudo roce share`"), "{error}");
}

/// A service that cannot create its socket receives for nobody.
#[test]
fn an_ordinary_user_is_no_service() {
    let Some(tool) = Tool::new() else { return };
    let mut waiting = Running(tool.by(ONE, &["share", "udp:127.79.47.1"]).spawn().unwrap());
    let mut told = BufReader::new(waiting.0.stderr.take().unwrap()).lines();
    let line = told.next().unwrap().unwrap();
    assert!(line.contains("/run/roce-share") && line.contains("as root"), "{line}");
}

#[test]
fn an_address_that_is_taken_is_waited_for() {
    let Some(tool) = Tool::new() else { return };
    let device = "udp:127.79.45.1";
    let other = Running(
        tool.by(ONE, &["rping", "-s", "-a", "127.79.45.1", "--device", device]).spawn().unwrap(),
    );
    until_bound("127.79.45.1");
    let mut waiting = Running(tool.by(ROOT, &["share", device]).spawn().unwrap());
    let mut told = BufReader::new(waiting.0.stderr.take().unwrap()).lines();
    let line = told.next().unwrap().unwrap();
    assert!(line.contains(&format!("of the user {ONE} has port 4791")), "{line}");
    sleep(Duration::from_millis(1500));
    drop(other);
    let mut line = String::new();
    BufReader::new(waiting.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("{device}: 127.79.45.1\n"));
    drop(waiting);
    let rest: Vec<_> = told.map(Result::unwrap).filter(|line| line.contains("4791")).collect();
    assert_eq!(rest, [""; 0]);
}

/// systemd stores a service's descriptors until its restart.
struct Manager {
    notify: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(tool: &Tool) -> Self {
        let path = tool.0.path().join("notify");
        Self { notify: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// `kept`: given descriptors; returns those stored when ready.
    fn start(
        &self,
        tool: &Tool,
        device: &str,
        kept: &[(String, OwnedFd)],
    ) -> (Running, Vec<(String, OwnedFd)>) {
        // Descriptors start at 3, and LISTEN_PID is the process's own.
        let given: Vec<OwnedFd> = kept.iter().map(|(_, it)| inherited(it).unwrap()).collect();
        let moves = given.iter().enumerate();
        let moves: String =
            moves.map(|(to, from)| format!("exec {}<&{}\n", 3 + to, from.as_raw_fd())).collect();
        let script = format!(
            "{moves} LISTEN_PID=$$ exec {} share {device}",
            tool.0.path().join("roce").to_string_lossy()
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("NOTIFY_SOCKET", &self.path);
        command.env("LISTEN_FDS", kept.len().to_string());
        let names: Vec<_> = kept.iter().map(|(name, _)| name.as_str()).collect();
        command.env("LISTEN_FDNAMES", names.join(":"));
        let program = Tool::shared(&mut command, device);
        drop(given);
        let mut kept = Vec::new();
        loop {
            let mut text = [0; 256];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut text)];
            let flags = RecvFlags::empty();
            let length = recvmsg(&self.notify, &mut into, &mut ancillary, flags).unwrap().bytes;
            let text = String::from_utf8_lossy(&text[..length]);
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    kept.extend(descriptors.map(|it| (name.unwrap().to_owned(), it)));
                }
            }
            if text.starts_with("READY=1") {
                return (program, kept);
            }
        }
    }
}

fn inherited(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    let copy = fcntl_dupfd_cloexec(descriptor, 50)?;
    fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

#[test]
fn systemd_keeps_the_sockets() {
    let Some(tool) = Tool::new() else { return };
    let (device, address) = ("udp:127.79.48.1", "127.79.48.1:4791");
    let manager = Manager::new(&tool);
    let (first, kept) = manager.start(&tool, device, &[]);
    assert_eq!(kept.len(), 2, "the socket, and the file that says who has which numbers");
    drop(first);
    let taken = UdpSocket::bind(address).map_err(|error| error.kind());
    assert_eq!(taken.err(), Some(ErrorKind::AddrInUse));
    let (_next, others) = manager.start(&tool, device, &kept);
    assert_eq!(others.len(), 0, "it has them already");
    let rest = ["-C", "20", "-S", "900", "--device"];
    let server = [&["rping", "-s", "-a", "127.79.48.1"][..], &rest, &[device]].concat();
    let client = [&["rping", "-c", "-a", "127.79.48.1"][..], &rest, &[device]].concat();
    play(tool.by(ONE, &server), tool.by(OTHER, &client));
}
