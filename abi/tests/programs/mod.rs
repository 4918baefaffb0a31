//! C programs, compiled with installed headers, if any, and with our `declarations`. `calls` needs
//! no C compiler.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

mod adapters;
mod calls;
mod checks;
mod faults;
mod gpu;
pub(crate) mod library;
mod mistakes;
mod symbols;
mod wrong;

use crate::{
    common::{self, Directory},
    own_test,
    program::{LIMIT, Output, Program},
    watchdog,
};

/// Exit status of a successful program with findings.
const FOUND: i32 = 99;

/// Reruns a test in its own process, with this variable; false inside.
fn runs_alone(name: &str, variable: (&str, &str)) -> bool {
    const ALONE: &str = "ROCE_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return false;
    }
    watchdog::start(String::new);
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", own_test::named(&format!("programs::{name}")), "--nocapture"])
        .envs([(ALONE, "1"), variable])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = watchdog::programs::wait_with_output(child, LIMIT);
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}\n{out}\n{err}", done.status);
    true
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// `options` name header directories, `variables` the environment.
fn run(compiler: &str, options: &[String], name: &str, variables: &[(&str, &str)]) -> Output {
    compile(compiler, options, name).run(variables, 0)
}

/// Some share headers with `wrong`.
fn compile(compiler: &str, options: &[String], name: &str) -> Program {
    let shared = [sources(), wrong::directory()].map(|path| format!("-I{}", path.display()));
    let file = sources().join(format!("{name}.c"));
    Program::compile(compiler, &[options, &shared].concat(), &file, false)
}

/// Writes recorded constants as a header; returns compiler options.
fn declarations(directory: &Directory) -> Vec<String> {
    let facts = common::OLDEST.facts();
    let base = facts["member verbs_context context"];
    let mut text = String::new();
    for (fact, number) in &facts {
        text += &match fact.split(' ').collect::<Vec<_>>()[..] {
            ["constant", name] => format!("#define {name} {number}\n"),
            ["member", "verbs_context", member] if *number < base => {
                format!("#define DISTANCE_{member} {}\n", base - number)
            }
            _ => continue,
        };
    }
    fs::create_dir_all(directory.file("infiniband")).unwrap();
    fs::write(directory.file("infiniband/numbers.h"), text).unwrap();
    let include = |path: &Path| format!("-I{}", path.display());
    vec![include(&sources().join("declarations")), include(&directory.file(""))]
}

/// False without a compiler.
fn run_compiled(name: &str, variables: &[(&str, &str)]) -> bool {
    let Some(compiler) = common::compiler() else { return false };
    let directory = Directory::new();
    run(&compiler, &declarations(&directory), name, variables);
    if common::has_headers(&compiler) {
        run(&compiler, &[], name, variables);
        println!("compiled with our declarations and with the installed headers");
    } else {
        println!("no headers are installed: compiled with our declarations alone");
    }
    true
}

/// `None` without a compiler.
fn program(name: &str) -> Option<Program> {
    let (compiler, directory) = (common::compiler()?, Directory::new());
    Some(compile(&compiler, &declarations(&directory), name))
}

#[test]
fn queue_pairs() {
    if !run_compiled("queue_pairs", &[]) {
        println!("no C compiler is installed: the calls are made from Rust");
        calls::make_all();
    }
}

/// The record has no flows: installed headers only.
#[test]
fn flows() {
    let Some(compiler) = common::compiler().filter(|compiler| common::has_headers(compiler)) else {
        println!("no headers are installed: nothing was run");
        return;
    };
    let can = Command::new("unshare").args(["--map-root-user", "--net", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        assert!(env::var_os("ROCE_NAMESPACES").is_none(), "no namespace can be made");
        println!("no network namespace can be made here: left to CI");
        return;
    }
    let setup = "mount -t sysfs none /sys
        ip link set lo up
        ip link add flow0 type veth peer name flow1
        ip link set flow0 up
        ip link set flow1 up
        until ip link show flow0 | grep -q 'state UP'; do sleep 0.01; done";
    let device = ("ROCE_DEVICES", "raw:flow0,ip=10.0.0.1/24,mac=02:00:00:00:00:0a");
    compile(&compiler, &[], "flows").run_in_namespace(setup, &[device]);
}

#[test]
fn objects() {
    for variables in [&[][..], &[("ROCE_DISTINCT_KEYS", "1")]] {
        if !run_compiled("objects", variables) {
            println!("no C compiler is installed: nothing was run");
        }
    }
}

/// With every file that a call may write: writes are cancellation points.
#[test]
fn threads_are_cancelled_where_they_wait_and_nowhere_else() {
    let directory = Directory::new();
    let capture = directory.file("%p.pcapng");
    let capture = ("ROCE_PCAP", capture.to_str().unwrap());
    // duplicates are counted, hence logged
    let log = [("ROCE_LOG", "debug"), ("ROCE_FAULT", "duplicate every 2")];
    for variables in [
        &[][..],
        &[("ROCE_SOCKETS_ONLY", "1")],
        &[capture, log[0], log[1]],
        &[capture, log[0], log[1], ("ROCE_SOCKETS_ONLY", "1")],
    ] {
        if !run_compiled("cancellation", variables) {
            println!("no C compiler is installed: `a_thread_that_waits_can_be_cancelled` is left");
        }
    }
}

#[test]
fn threads_that_wait_hear_of_their_own_events() {
    let (sockets, shards) = (("ROCE_SOCKETS_ONLY", "1"), ("ROCE_SHARDS", "3"));
    for variables in [&[][..], &[sockets], &[shards], &[sockets, shards]] {
        if !run_compiled("waits", variables) {
            println!("no C compiler is installed: nothing waits without one");
        }
    }
}

/// Only one device has the address; with `ROCE_SOCKETS_ONLY`, one process.
#[test]
fn a_device_is_opened_while_another_thread_closes_it() {
    let address = ("ROCE_DEVICES", "udp:127.9.18.27");
    for variables in [&[address][..], &[address, ("ROCE_SOCKETS_ONLY", "1")]] {
        if !run_compiled("reopen", variables) {
            println!("no C compiler is installed: nothing was run");
        }
    }
}

#[test]
fn who_is_woken_has_an_event() {
    for variables in [
        &[][..],
        &[("ROCE_SOCKETS_ONLY", "1")],
        &[("ROCE_FAULT", "drop 1%")],
        &[("ROCE_SHARDS", "2")],
    ] {
        if !run_compiled("event_loop", variables) {
            println!("no C compiler is installed: nothing waits without one");
        }
    }
}

/// Freed memory is overwritten.
#[test]
fn threads_that_wait_for_what_is_destroyed_know_it() {
    let overwritten = ("MALLOC_PERTURB_", "165");
    if !run_compiled("events", &[overwritten]) {
        println!("no C compiler is installed: nothing waits without one");
    }
    if let Some(program) = program("events") {
        let told = program.run(&[overwritten, ("ROCE_CHECK", "1")], FOUND).stderr;
        for call in ["ibv_get_cq_event", "ibv_get_async_event", "rdma_get_cm_event"] {
            let wanted = format!("used_after_destroy: {call} with the ");
            assert!(told.contains(&wanted), "{told}");
        }
    }
}

#[test]
fn a_child_uses_the_library_whatever_other_threads_did_at_the_fork() {
    for variables in [&[][..], &[("ROCE_SHARDS", "2")]] {
        if !run_compiled("forks", variables) {
            println!("no C compiler is installed: nothing can be forked without one");
        }
    }
}

#[test]
fn rsockets() {
    for variables in [
        &[][..],
        &[("ROCE_SOCKETS_ONLY", "1")],
        &[("ROCE_FAULT", "drop 1%; duplicate 1%; reorder 1%")],
    ] {
        if !run_compiled("rsockets", variables) {
            println!("no C compiler is installed: nothing was run");
        }
    }
}

#[test]
fn datagrams() {
    for variables in [&[][..], &[("ROCE_SOCKETS_ONLY", "1")], &[("ROCE_FAULT", "drop 2%")]] {
        if !run_compiled("datagrams", variables) {
            println!("no C compiler is installed: nothing was run");
        }
    }
}

#[test]
fn a_sandbox_refuses_something() {
    let Some(program) = program("sandbox") else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    for (denied, shared, alone) in [
        ("memfd_create", &["the system refuses memfd_create: "][..], &[][..]),
        ("userfaultfd", &[], &[]),
        ("UDP options", &["UDP_GRO (", "UDP_SEGMENT ("], &["UDP_GRO (", "UDP_SEGMENT ("]),
        ("IPv6", &[], &[]),
    ] {
        for (sockets_only, told) in [("0", shared), ("1", alone)] {
            let variables = [("DENIED", denied), ("ROCE_SOCKETS_ONLY", sockets_only)];
            let lines = program.run(&variables, 0).stderr;
            assert_eq!(lines.lines().count(), told.len(), "{denied}: {lines}");
            for (line, words) in lines.lines().zip(told) {
                assert!(line.starts_with("roce: ") && line.contains(words), "{denied}: {lines}");
            }
        }
    }
}

/// `SIGPIPE` ignored, as in Python.
#[test]
fn a_program_whose_standard_error_nobody_reads_goes_on() {
    let Some(program) = program("sandbox") else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    for (variable, value) in
        [("ROCE_LOG", ""), ("ROCE_LOG", "trace"), ("ROCE_CONTROL", "/no/such/place")]
    {
        program.run_unheard(&[("DENIED", "memfd_create"), (variable, value)]);
    }
}

#[test]
fn counters_outlive_the_program() {
    let Some(program) = program("left_open") else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let classes = Directory::new();
    let port = classes.file("infiniband/roce_lo/ports/1");
    let names = ["hw_counters/rx_write_requests", "counters/port_xmit_data"];
    for name in names {
        let file = port.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "7\n").unwrap();
    }
    for runs in 1..=2 {
        program.run(&[("ROCE_SYSFS", classes.file("").to_str().unwrap())], 0);
        let [writes, data] = names.map(|name| {
            let text = fs::read_to_string(port.join(name)).unwrap();
            text.trim_end().parse::<u64>().unwrap()
        });
        assert_eq!(writes, 7 + 30 * runs);
        let payload = 30 * runs * 1024 / 4;
        assert!((payload..payload * 2).contains(&data), "{data} for {payload}");
    }
}

#[test]
fn declarations_have_the_recorded_layout() {
    let text = fs::read_to_string(sources().join("declarations/infiniband/verbs.h")).unwrap();
    let declared: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {")).collect();
    let recorded = common::OLDEST.facts();
    assert!(declared.len() > 20, "{declared:?}");
    for name in &declared {
        assert!(recorded.contains_key(&format!("struct {name}")), "{name} is not recorded");
    }
    // lock sizes differ between processors
    let (Some(compiler), true) = (common::compiler(), cfg!(target_arch = "x86_64")) else {
        println!("no C compiler, or another processor: the names are compared, the layout is not");
        return;
    };
    let of_declared = |fact: &&String| match fact.split(' ').collect::<Vec<_>>()[..] {
        ["struct", name] => declared.contains(&name),
        ["member", name, _] => declared.contains(&name),
        _ => false,
    };
    let wanted: Vec<String> = recorded.keys().filter(of_declared).cloned().collect();
    let directory = Directory::new();
    let options = declarations(&directory);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let printed = common::print_facts(&compiler, &options, &["infiniband/verbs.h"], wanted.clone());
    let found = common::facts(&printed);
    assert_eq!(found.len(), wanted.len());
    for (fact, number) in found {
        assert_eq!(number, recorded[&fact], "{fact}");
    }
}

#[test]
fn calls_from_rust() {
    calls::make_all();
}
