//! A program with more rights than its user ignores files and devices of the environment.

use std::{
    env, fs,
    net::SocketAddr,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use roce::{
    Device, OpenOptions, SendWr,
    cm::{EventChannel, PortSpace},
    environment,
};

use super::{Side, connect};
use crate::own_test;

const INSIDE: &str = "ROCE_TEST_PRIVILEGED";
const NOBODY: u32 = 65_534;

/// Only root can become another user.
#[test]
fn a_low_port_is_refused_to_an_ordinary_user() {
    if env::var_os(INSIDE).is_some() || !rustix::process::geteuid().is_root() {
        return bind_low();
    }
    let directory = env::temp_dir().join(format!("roce-live-ports-{}", std::process::id()));
    let scratch = Scratch(directory.clone(), directory);
    let program = copy_to(&scratch.0);
    let name = own_test::named("live::privileged::a_low_port_is_refused_to_an_ordinary_user");
    let mut command = Command::new(&program);
    command.args(["--exact", name]).env(INSIDE, "yes").current_dir(&scratch.0);
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn bind_low() {
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let start: u16 = start.trim().parse().unwrap();
    let channel = EventChannel::new().unwrap();
    let bind = |port| {
        let id = channel.create_id(PortSpace::Tcp);
        id.bind_addr(SocketAddr::new([0, 0, 0, 0].into(), port)).err().map(|error| error.errno())
    };
    assert_eq!(bind(start.max(1)), None);
    if start > 1 {
        assert_eq!(bind(start - 1), Some(libc::EACCES));
    }
}

/// Every user can start it.
fn copy_to(directory: &Path) -> PathBuf {
    fs::DirBuilder::new().mode(0o755).create(directory).unwrap();
    let program = directory.join("program");
    // Another process copies: a child of a parallel test could inherit a writable descriptor
    // (ETXTBSY).
    let copied = Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    program
}

fn send_to_itself() {
    assert_eq!(environment::value("ROCE_DEVICES").is_some(), env::var_os(INSIDE).unwrap() == "no");
    let options = || OpenOptions { sockets_only: true, ..OpenOptions::from_environment().unwrap() };
    let open = || Side::on(Device::named("roce_lo").unwrap().open(options()).unwrap());
    let (a, b) = (open(), open());
    connect(&a, &b);
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..8))]).unwrap();
    a.next().result.unwrap();
    environment::devices().unwrap();
}

/// A directory, and the owner's published counters.
struct Scratch(PathBuf, PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir_all(&self.1);
    }
}

/// Another user starts one user's copy with the owner's environment, plain and then setuid. Needs
/// root.
#[test]
fn variables_are_ignored_in_a_setuid_program() {
    if env::var_os(INSIDE).is_some() {
        return send_to_itself();
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("a setuid program of another user can be made by root only: left to CI");
        return;
    }
    let owner = 30_000 + std::process::id() % 20_000; // has nothing else in /tmp
    let directory = env::temp_dir().join(format!("roce-live-setuid-{owner}"));
    let scratch = Scratch(directory, PathBuf::from(format!("/tmp/roce-{owner}")));
    let (program, secret) = (copy_to(&scratch.0), scratch.0.join("secret"));
    fs::write(&secret, "precious").unwrap();
    let runtime = scratch.0.join("runtime");
    fs::create_dir(&runtime).unwrap();
    for path in [&program, &secret, &runtime, &scratch.0] {
        chown(path, Some(owner), Some(owner)).unwrap();
    }
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700)).unwrap();

    let run = |user: u32, setuid: bool, pcap: &Path| {
        let mode = if setuid { 0o4755 } else { 0o755 };
        fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command
            .args([
                "--exact",
                own_test::named("live::privileged::variables_are_ignored_in_a_setuid_program"),
            ])
            .env(INSIDE, if setuid { "yes" } else { "no" })
            .env("ROCE_DEVICES", if setuid { "no-such-device" } else { "roce_lo" })
            .env("ROCE_FAULT", if setuid { "no such fault" } else { "" })
            .env("ROCE_PCAP", pcap)
            .env("XDG_RUNTIME_DIR", &runtime)
            .current_dir(&scratch.0)
            .uid(user)
            .gid(user);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let made = || fs::read_dir(&scratch.0).unwrap().count();
    run(owner, false, &scratch.0.join("x.pcapng"));
    assert_eq!(fs::metadata(scratch.0.join("x.pcapng")).unwrap().mode() & 0o777, 0o600);
    assert!(runtime.join("roce").exists() && !scratch.1.exists());
    fs::remove_dir(runtime.join("roce")).unwrap();

    let before = made();
    run(NOBODY, true, &secret);
    run(NOBODY, true, &scratch.0.join("y.pcapng"));
    assert_eq!(fs::read(&secret).unwrap(), b"precious");
    assert_eq!(made(), before);
    assert!(!runtime.join("roce").exists());
}
