//! C programs over TCP with both libraries preloaded.

use std::{env, fs, path::Path};

#[path = "../../abi/tests/common/mod.rs"]
#[allow(dead_code, reason = "the compiler alone is asked for")]
mod common;
#[path = "../../abi/tests/program/mod.rs"]
#[allow(dead_code, reason = "not all who share this file need all of it")]
mod program;
#[path = "../../tests/watchdog/mod.rs"]
mod watchdog;

// built as a dependency; the programs load it
use roce_abi as _;

use program::Program;

fn run(name: &str, variables: &[(&str, &str)]) {
    let Some(compiler) = common::compiler() else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let headers = format!("-I{}", manifest.join("../abi/tests/programs").display());
    let file = manifest.join("tests/programs").join(name).with_extension("c");
    let preload =
        fs::canonicalize(env::current_exe().unwrap().with_file_name("librspreload.so")).unwrap();
    let variables = [variables, &[("LD_PRELOAD", preload.to_str().unwrap())]].concat();
    Program::compile(&compiler, &[headers], &file, true).run(&variables, 0);
}

#[test]
fn waits_with_a_time_that_is_none_are_refused() {
    run("waits", &[]);
}

/// Processes share one address.
#[test]
fn connections_become_rsockets_in_the_child_that_uses_them() {
    run("forks", &[("RDMAV_FORK_SAFE", "1"), ("ROCE_DEVICES", "udp:127.9.18.28")]);
}

/// Each process needs its own address: one connection succeeds, the rest stay with TCP.
#[test]
fn connections_stay_with_tcp_where_children_have_no_device() {
    let alone = ("ROCE_SOCKETS_ONLY", "1");
    run("forks", &[("RDMAV_FORK_SAFE", "1"), ("ROCE_DEVICES", "udp:127.9.18.29"), alone]);
}
