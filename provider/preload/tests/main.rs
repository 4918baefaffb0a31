//! C programs that use TCP, with the two libraries in front of the C library.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

#[path = "../../abi/tests/common/mod.rs"]
#[allow(dead_code, reason = "the compiler alone is asked for")]
mod common;
#[path = "../../../tests/watchdog/mod.rs"]
mod watchdog;

// it is built because it is a dependency, and loaded by the programs
use roce_abi as _;

/// Time that a program has.
const LIMIT: Duration = Duration::from_secs(60);

/// Compiles a program beside this file and runs it with the libraries and these variables.
fn run(name: &str, variables: &[(&str, &str)]) {
    watchdog::start(String::new);
    let Some(compiler) = common::compiler() else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let built = |name| env::current_exe().unwrap().with_file_name(name);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    symlink(built("libroce_abi.so"), file("librdmacm.so.1")).unwrap();
    let preload = fs::canonicalize(built("librspreload.so")).unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new(compiler)
        .args(["-Wall", "-Werror", "-pthread", "-I"])
        .arg(manifest.join("../abi/tests/programs"))
        .arg("-o")
        .arg(file(name))
        .arg(manifest.join("tests/programs").join(name).with_extension("c"))
        .status();
    assert!(compiled.unwrap().success(), "{name} does not compile");
    let running = Command::new(file(name))
        .env("LD_LIBRARY_PATH", directory.path())
        .env("LD_PRELOAD", preload)
        .env("XDG_RUNTIME_DIR", directory.path())
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = watchdog::programs::wait_with_output(running, LIMIT);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {}\n{said}", done.status);
}

#[test]
fn waits_with_a_time_that_is_none_are_refused() {
    run("waits", &[]);
}

/// At one address, which processes share.
#[test]
fn connections_become_rsockets_in_the_child_that_uses_them() {
    run("forks", &[("RDMAV_FORK_SAFE", "1"), ("ROCE_DEVICES", "udp:127.9.18.28")]);
}

/// Each process has the address for itself: all but one connection stay with TCP.
#[test]
fn connections_stay_with_tcp_where_children_have_no_device() {
    let alone = ("ROCE_SOCKETS_ONLY", "1");
    run("forks", &[("RDMAV_FORK_SAFE", "1"), ("ROCE_DEVICES", "udp:127.9.18.29"), alone]);
}
