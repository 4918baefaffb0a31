//! Programs with one mistake each, and what `ROCE_EXPLAIN` says of it; without the mistake, nothing.

use std::{
    env,
    net::TcpListener,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use crate::{LIMIT, common::Directory, output_of, watchdog};

/// The mistake, the causes that are named, in their order, and what the advice, the rule or the peer's
/// part of the last of them has to say.
const MISTAKES: [(&str, &[&str], &str); 18] = [
    ("no_gid", &["no_gid"], "set ah_attr.is_global = 1"),
    ("wrong_order", &["illegal_transition"], "go INIT, RTR, RTS"),
    ("missing_attribute", &["missing_attribute"], "needs IBV_QP_PKEY_INDEX (pkey_index)"),
    ("too_many_sges", &["too_many_sges"], "num_sge is 3, and the queue was made for 2"),
    ("inline_too_long", &["inline_too_long"], "cap.max_inline_data"),
    ("bad_lkey", &["unknown_key"], "lkey of ibv_reg_mr's region"),
    ("bad_rkey", &["unknown_key", "remote_access"], "answered NAK remote access error"),
    ("missing_right", &["not_enabled", "remote_invalid_request"], "qp_access_flags"),
    ("no_receive", &["receiver_not_ready"], "answered \"receiver not ready\" 2 times"),
    ("wrong_number", &["unknown_qp", "no_answer"], "no such queue pair"),
    ("wrong_psn", &["wrong_psn"], "rq_psn of the peer must be sq_psn here"),
    ("wrong_qkey", &["bad_qkey"], "it came with 0x11111112"),
    ("cq_overrun", &["cq_overrun"], "room for every request"),
    (
        "short_receive",
        &["buffer_too_small", "remote_invalid_request"],
        "longer than its receive buffer",
    ),
    ("post_in_reset", &["post_state"], "to RTS before sends are"),
    ("queue_full", &["queue_full"], "poll completions"),
    ("remote_without_local", &["remote_without_local_write"], "IBV_ACCESS_LOCAL_WRITE"),
    ("domain_in_use", &["object_in_use"], "queue pairs before their completion queues"),
];

fn explained(mistake: &str, variables: &[(&str, &str)]) -> Option<String> {
    let variables = [&[("MISTAKE", mistake)], variables].concat();
    Some(output_of("mistakes", &variables)?.stderr)
}

#[test]
fn each_mistake_is_explained_and_its_repair_is_not() {
    for (mistake, causes, said) in MISTAKES {
        let Some(lines) = explained(mistake, &[("ROCE_EXPLAIN", "json")]) else {
            println!("no C compiler is installed: nothing was run");
            return;
        };
        let found: Vec<serde_json::Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{mistake}: {line}")))
            .collect();
        for cause in causes {
            let of_cause = |object: &&serde_json::Value| object["cause"] == *cause;
            assert!(
                found.iter().any(|object| of_cause(&object)),
                "{mistake}: no {cause} in {lines}"
            );
        }
        let known =
            |object: &serde_json::Value| causes.iter().any(|cause| object["cause"] == *cause);
        let other = ["cq_overrun", "flushed"]; // of the other queue pair
        let strange = |object: &&serde_json::Value| {
            !known(object) && !other.iter().any(|cause| object["cause"] == *cause)
        };
        assert_eq!(found.iter().find(strange), None, "{mistake}");
        assert!(lines.contains(&said.replace('"', "\\\"")), "{mistake}: {lines}");
        let repaired = explained(mistake, &[("ROCE_EXPLAIN", "json"), ("REPAIRED", "1")]);
        assert_eq!(repaired.as_deref(), Some(""), "{mistake}, repaired");
        assert_eq!(explained(mistake, &[]).as_deref(), Some(""), "{mistake}, not asked for");
    }
}

/// A stock program that is started without the option that RoCE needs.
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
    // the server listens when a connection is taken; what it gets is no address, so both end
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
    let Some(text) = explained("wrong_number", &[("ROCE_EXPLAIN", "1")]) else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    for part in [
        ": ibv_post_send 7: SEND of 8 B: IBV_WC_RETRY_EXC_ERR (12)\n",
        "  why:  sent 3 times, and given up\n",
        "  peer: no answer in time ",
        "nothing at all has come from 127.0.0.",
        "  peer: this process itself has 127.0.0.",
        " × no such queue pair\n",
        "  look: dest_qp_num, ah_attr.grh.dgid",
        "  before:",
        "request 7, again: timeout",
        "request 7 completed in error: transport retry counter exceeded",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "a pipe gets no colours");
}
