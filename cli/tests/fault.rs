//! With stock programs, if installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::{TempDir, tempdir};

fn roce(runtime: &TempDir, arguments: &[&str]) -> Output {
    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    for variable in ["ROCE_FAULT", "ROCE_CONTROL", "ROCE_CHECK", "ROCE_EXPLAIN"] {
        command.env_remove(variable);
    }
    command.env("ROCE_LIBRARY", library());
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime.path()).output().unwrap()
}

/// Cargo builds it for the tests.
fn library() -> PathBuf {
    env::current_exe().unwrap().with_file_name("libroce_abi.so")
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let runtime = tempdir().unwrap();
    for (arguments, hint) in [
        (&["fault"][..], "roce run --control"),
        (&["fault", "drop 1%"], "--pid"),
        (&["fault", "--pid", "1", "drop 1"], "write \"1%\""),
        (&["fault", "--pid", "1", "fail", "creat_cq"], "create_cq"),
        (&["fault", "--pid", "1", "list"], "process 1 takes no rules"),
        (&["fault", "--socket", "/nowhere/x", "clear"], "/nowhere/x takes no rules"),
        (&["run", "--fault", "fail creat_cq", "--", "true"], "unknown call \"creat_cq\""),
    ] {
        let output = roce(&runtime, arguments);
        let (out, err) = said(&output);
        assert!(!output.status.success() && out.is_empty(), "{arguments:?}: {out}");
        assert!(err.contains(hint) && err.lines().count() == 1, "{arguments:?}: {err}");
    }
}

#[test]
fn every_example_of_the_guide_is_taken() {
    let runtime = tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/faults.md");
    let page = fs::read_to_string(page).unwrap();
    let mut column = None;
    let mut examples = Vec::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if cells.len() < 3 {
            column = None;
        } else if let Some(column) = column {
            examples.extend(cells.get::<usize>(column).and_then(|it| it.split('`').nth(1)));
        } else {
            column = cells.iter().position(|it| *it == "example");
        }
    }
    assert!(examples.len() > 40, "{examples:?}");
    for rules in examples {
        let output = roce(&runtime, &["run", "--fault", rules, "--", "true"]);
        assert!(output.status.success(), "{rules}: {}", said(&output).1);
    }
}

#[test]
fn a_program_without_calls_is_told() {
    let runtime = tempdir().unwrap();
    let output = roce(&runtime, &["run", "--fail-each", "--", "true"]);
    let (out, err) = said(&output);
    assert!(output.status.success() && out.contains("0 runs"), "{out}");
    assert!(err.contains("makes no call"), "{err}");
    let output = roce(&runtime, &["run", "--fail-each", "--time-limit", "1", "--", "sleep", "60"]);
    assert!(said(&output).1.contains("does not end in 1 s"), "{:?}", said(&output));
}

/// Stock programs may give up or hang on a failing call, but `roce` must not crash.
#[track_caller]
fn fail_each(program: &str, script: &str) {
    fail_each_with(program, script, &[], &[]);
}

/// `theirs`: calls whose failure crashes the program itself.
#[track_caller]
fn fail_each_with(program: &str, script: &str, more: &[&str], theirs: &[&str]) {
    if !is_installed(program) {
        println!("{program} is not installed: it was not run");
        return;
    }
    let runtime = tempdir().unwrap();
    // Libraries leave core files and reports here.
    let script = format!("cd '{}' && {{ {script}; }}", runtime.path().display());
    let options = ["run", "--fail-each=json", "--most", "1", "--time-limit", "3"];
    let output = roce(&runtime, &[&options[..], more, &["--", "sh", "-c", &script]].concat());
    let (out, err) = said(&output);
    if err.contains("--sysfs") {
        println!("{program} was not run: {err}");
        return;
    }
    if err.contains("does not end in") {
        println!("{program} was too slow, on a machine that has other work: {err}");
        return;
    }
    let lines: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [whole, runs @ .., summary] = &lines[..] else { panic!("{out}{err}") };
    assert!(whole["calls"].as_u64() > Some(3) && runs.len() > 3, "{out}");
    assert_eq!(summary["runs"].as_u64(), Some(runs.len() as u64), "{summary}");
    for run in runs {
        let end = run["end"].as_str().unwrap();
        let is_theirs = run["call"].as_str().is_some_and(|call| theirs.contains(&call));
        assert!(run["panic"].is_null() && (is_theirs || !end.starts_with("crash")), "{run}");
    }
}

#[test]
fn no_failing_call_crashes_roce_in_ibv_devinfo() {
    fail_each("ibv_devinfo", "ibv_devinfo");
}

/// The client retries until the server listens; the status is the client's.
fn pair(server: &str, client: &str) -> String {
    format!(
        "{server} & s=$!; for i in 1 2 3 4 5; do sleep 0.2; {client} && break; done; r=$?; \
         kill $s; wait $s; exit $r"
    )
}

#[test]
fn no_failing_call_crashes_roce_in_rping() {
    fail_each("rping", &pair("rping -s -a 127.0.0.1 -C 2", "rping -c -a 127.0.0.1 -C 2"));
}

#[test]
fn no_failing_call_crashes_roce_in_ib_write_bw() {
    let server = "ib_write_bw -d roce_lo -n 5 -s 64";
    fail_each("ib_write_bw", &pair(server, &format!("{server} 127.0.0.1")));
}

/// Middleware looks for devices in /sys; the guide has the results.
#[test]
fn no_failing_call_crashes_roce_in_the_start_of_middleware() {
    let theirs = ["ibv_query_qp", "ibv_post_recv"];
    fail_each_with("ucx_info", "ucx_info -d", &["--sysfs"], &theirs);
    fail_each_with("fi_info", "fi_info -p verbs", &["--sysfs"], &["rdma_get_devices"]);
}

#[test]
fn connections_are_rejected_on_request() {
    if !is_installed("rping") {
        println!("rping is not installed: nothing was run");
        return;
    }
    let runtime = tempdir().unwrap();
    // A device with faults does not share its address; rping's status ignores the exchange.
    let server = "roce run -d udp:127.79.22.1 --fault 'cm reject nth 1' -- \
                  rping -s -P -a 127.79.22.1 & s=$!";
    let client = "roce run -d udp:127.79.22.2 -- rping -c -v -a 127.79.22.1 -C 1 2>&1";
    let script = format!(
        "{server}; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; {client} | grep -q REJECTED && \
         break; done; {client} | grep -q 'ping data'; r=$?; kill $s; exit $r"
    );
    let roce = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap();
    let path = format!("{}:{}", roce.display(), env::var("PATH").unwrap());
    crate::watchdog::start(String::new);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("PATH", path).env("XDG_RUNTIME_DIR", runtime.path());
    command.env("ROCE_LIBRARY", library());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{:?}", said(&output));
}
