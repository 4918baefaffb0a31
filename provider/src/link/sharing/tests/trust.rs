//! Trust across users and namespaces. Each end of a connection is a copy of this program, started
//! by util-linux.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use super::*;
use crate::{
    link::{
        check_trust,
        sharing::names::{listen, of_address},
        stranger::Unchecked,
    },
    own_test,
    readiness::wait,
    sync::Mutex,
};

/// `start`, or `listen` or `connect` and the address.
const INSIDE: &str = "ROCE_TEST_TRUST";
const TEST: &str = "link::sharing::tests::trust::who_could_trace_each_other_trust_each_other";
const START: &str = "start";
const READY: &str = "ready";
const TRUSTS: &str = "trusts";
const REFUSES: &str = "refuses";
const PATIENCE: Duration = Duration::from_secs(20);

/// Reports whether this end trusts the other.
fn end(role: &str) {
    let (role, address) = role.split_once(' ').unwrap();
    let address = address.parse().unwrap();
    let socket = if role == "listen" {
        let listener = listen(address, 0).unwrap();
        println!("\n{READY}");
        wait(&[listener.as_fd()], Some(PATIENCE)).unwrap();
        listener.accept().unwrap().into_inner()
    } else {
        Unchecked::connect(of_address(address, 0).as_bytes()).unwrap().into_inner()
    };
    match check_trust(&socket) {
        Ok(()) => println!("\n{TRUSTS}"),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            println!("\n{REFUSES}");
        }
    }
    // neither end exits before the other has checked
    rustix::net::send(&socket, &[0], rustix::net::SendFlags::NOSIGNAL).unwrap();
    wait(&[socket.as_fd()], Some(PATIENCE)).unwrap();
}

struct Program(PathBuf);

impl Program {
    fn copy() -> Self {
        let path = env::temp_dir().join(format!("roce-trust-{}", std::process::id()));
        // written by another process: no child of a parallel test has the file open for writing
        let copied = Command::new("cp").arg(env::current_exe().unwrap()).arg(&path).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn start(&self, by: &[&str], role: &str, address: IpAddr) -> Child {
        let words: Vec<_> = by.iter().copied().chain([self.0.to_str().unwrap()]).collect();
        Command::new(words[0])
            .args(&words[1..])
            .args(["--exact", TEST, "--nocapture"])
            .env(INSIDE, format!("{role} {address}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Connects two ends, each started by a command. Returns whether each trusts the other.
    fn meet(&self, by: [&[&str]; 2]) -> [bool; 2] {
        let [address, _] = addresses();
        let mut listening = self.start(by[0], "listen", address);
        let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == READY), "{by:?}");
        let mut connecting = self.start(by[1], "connect", address);
        let mut theirs = String::new();
        connecting.stdout.take().unwrap().read_to_string(&mut theirs).unwrap();
        let ours: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(listening.wait().unwrap().success() && connecting.wait().unwrap().success());
        let theirs: Vec<String> = theirs.lines().map(str::to_owned).collect();
        [ours, theirs].map(|lines| {
            let says = |word: &str| lines.iter().any(|line| line == word);
            assert!(says(TRUSTS) != says(REFUSES), "{by:?}: {lines:?}");
            says(TRUSTS)
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Starts all other processes. Started before any test has a socket: a child keeps its parent's
/// sockets until exec, which would delay their end.
static STARTER: LazyLock<Mutex<Child>> = LazyLock::new(|| {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", own_test::named(TEST), "--nocapture"]).env(INSIDE, START);
    Mutex::new(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
});

/// Called before anything that lasts is opened.
pub(super) fn prepare() {
    if env::var_os(INSIDE).is_none() {
        LazyLock::force(&STARTER);
    }
}

#[test]
fn who_could_trace_each_other_trust_each_other() {
    match env::var(INSIDE).as_deref() {
        Ok(START) => {
            if io::stdin().lines().next().is_some() {
                meet_all();
            }
        }
        Ok(role) => end(role),
        Err(_) => {
            let mut starter = STARTER.lock();
            starter.stdin.take().unwrap().write_all(b"all\n").unwrap();
            assert!(starter.wait().unwrap().success(), "see above");
        }
    }
}

/// Only root can start programs as another user, or in other PID namespaces.
fn meet_all() {
    let program = Program::copy();
    let assert = |trust: bool, a: &[&str], b: &[&str]| {
        assert_eq!(program.meet([a, b]), [trust; 2], "{a:?} and {b:?}");
        assert_eq!(program.meet([b, a]), [trust; 2], "{b:?} and {a:?}");
    };
    assert(true, &[], &[]);

    let unmapped = ["unshare", "--user"];
    let mapped = ["unshare", "--user", "--map-root-user"];
    if Command::new("unshare")
        .arg("--user")
        .arg("true")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        assert(false, &[], &unmapped);
        assert(false, &unmapped, &unmapped);
        assert(false, &[], &mapped);
        assert(false, &mapped, &mapped);
    } else {
        assert!(env::var_os("ROCE_NAMESPACES").is_none(), "no user namespace can be made");
        eprintln!("no user namespace can be made here: left to CI");
    }

    if !rustix::process::geteuid().is_root() {
        eprintln!("programs of other users can be started by root only: left to CI");
        return;
    }
    let user = |uid| ["setpriv", "--clear-groups", "--regid", uid, "--reuid", uid];
    assert(true, &user("65534"), &user("65534"));
    assert(false, &user("65534"), &user("65533"));
    assert(false, &[], &user("65534"));
    assert(false, &user("65534"), &unmapped);
    let powerless = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];
    assert(true, &powerless, &powerless);
    assert(false, &[], &powerless);
    let contained = ["unshare", "--pid", "--fork"];
    assert(false, &[], &contained);
    assert(false, &contained, &contained);
}
