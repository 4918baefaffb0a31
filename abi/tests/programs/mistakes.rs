//! `ROCE_EXPLAIN` for people and stock programs. For causes see [`wrong`](super::wrong).

use std::{
    env,
    net::TcpListener,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use super::{LIMIT, common::Directory, watchdog, wrong};

#[test]
fn a_stock_program_without_a_gid_is_told_so() {
    let (directory, free) = (Directory::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let library = env::current_exe().unwrap().with_file_name("libroce_abi.so");
    symlink(library, directory.file("libibverbs.so.1")).unwrap();
    let start = |arguments: &[&str]| {
        let mut program = Command::new("ibv_rc_pingpong");
        program
            .args(["-d", "roce_lo", "-p", &port])
            .args(arguments)
            .env("LD_LIBRARY_PATH", directory.file(""))
            .env("XDG_RUNTIME_DIR", directory.file(""))
            .env("ROCE_EXPLAIN", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    };
    watchdog::start(String::new);
    let Ok(server) = start(&[]) else {
        println!("ibv_rc_pingpong is not installed: nothing was run");
        return;
    };
    // a successful connection proves that the server listens; both then end on bad data
    let client = loop {
        let client = watchdog::programs::wait_with_output(start(&["127.0.0.1"]).unwrap(), LIMIT);
        if !String::from_utf8_lossy(&client.stderr).contains("Couldn't connect to") {
            break client;
        }
    };
    let server = watchdog::programs::wait_with_output(server, LIMIT);
    assert!(!server.status.success() && !client.status.success());
    let text = String::from_utf8_lossy(&server.stderr);
    for part in [
        ": ibv_modify_qp: EINVAL\n  why:  RoCE needs a GID: ah_attr.is_global is 0\n",
        "ibv_rc_pingpong -g 0",
        "post_recv 1: 4096 B (16 times)",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn text_for_people_has_what_happened_before() {
    let Some(program) = wrong::compile("wrong_number", false) else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let text = program.run(&[("ROCE_EXPLAIN", "1")], 0).stderr;
    for part in [
        ": ibv_post_send 7: SEND of 8 B: IBV_WC_RETRY_EXC_ERR (12)\n",
        "  why:  given up after 3 tries\n",
        "  peer: ACK timeouts ",
        "no packet arrived from 127.0.0.",
        "  peer: this process itself has 127.0.0.",
        " × no such queue pair\n",
        "  look: check dest_qp_num, ah_attr.grh.dgid",
        "  before:",
        "request 7, retransmitted: timeout",
        "request 7 completed in error: transport retry counter exceeded",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "a pipe gets no colours");
}
