//! The programs are shells that write a known capture in the library's place.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

pub(crate) fn roce() -> Command {
    crate::watchdog::start(String::new);
    // Under nohup or in a script's background the tests ignore some signals.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_roce")]);
    command
}

/// Stands for the library. Written once: parallel tests read it.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("roce-live-library");
    fs::write(&path, b"\x7FELF").unwrap();
    path
});

/// `$CAPTURE` holds one connection.
fn drawn_run(options: &[&str], script: &str) -> Command {
    let mut command = roce();
    command.args(["run", "--ladder"]).args(options).arg("--library").arg(&*LIBRARY);
    command.args(["--", "sh", "-c", script]).env("CAPTURE", capture());
    command.stderr(Stdio::piped()).stdin(Stdio::null());
    command
}

fn capture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/course/captures/second.pcapng")
}

fn explained() -> (Vec<String>, Vec<String>) {
    let output = roce().arg("explain").arg(capture()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(String::from).collect();
    let (ladders, rest) = lines.split_at(lines.iter().position(|line| line == "findings").unwrap());
    let packets = ladders.iter().filter(|line| line.contains('│') || line.contains('├'));
    (packets.cloned().collect(), rest.to_vec())
}

fn drawn(output: &[u8]) -> (Vec<String>, Vec<String>) {
    let text = String::from_utf8(output.to_vec()).unwrap();
    let lines: Vec<_> = text.lines().map(String::from).collect();
    let end = lines.iter().position(|line| line == "findings").unwrap_or(lines.len());
    let packets = lines[..end].iter().filter(|line| line.contains('│') || line.contains('├'));
    (packets.cloned().collect(), lines[end..].to_vec())
}

#[test]
fn what_is_drawn_is_what_explain_says() {
    let output = drawn_run(&[], "cat \"$CAPTURE\" > \"$ROCE_PCAP\"; exit 5").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "the program's exit status");
    assert_eq!(drawn(&output.stderr), explained());
}

/// A packet may be half written when read.
#[test]
fn packets_come_in_parts() {
    let script = "size=$(wc -c < \"$CAPTURE\"); at=0
        while [ $at -lt $size ]; do
            tail -c +$((at + 1)) \"$CAPTURE\" | head -c 777 >> \"$ROCE_PCAP\"
            at=$((at + 777)); sleep 0.02
        done";
    let output = drawn_run(&["--reaper"], script).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(drawn(&output.stderr), explained());
}

#[test]
fn the_program_need_not_end() {
    let script = "cat \"$CAPTURE\" > \"$ROCE_PCAP\"; read word; exit 7";
    let mut command = drawn_run(&[], script);
    let mut tool = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stderr.take().unwrap()).lines();
    for expected in explained().0 {
        let found = lines.by_ref().find(|line| *line.as_ref().unwrap() == expected);
        assert!(found.is_some(), "{expected}");
    }
    drop(tool.stdin.take());
    lines.for_each(drop);
    assert_eq!(tool.wait().unwrap().code(), Some(7));
}

#[test]
fn every_process_has_a_ladder_and_nothing_is_left() {
    let script = "cat \"$CAPTURE\" > \"${ROCE_PCAP}1\"; cat \"$CAPTURE\" > \"${ROCE_PCAP}2\"
        dirname \"$ROCE_PCAP\"";
    let output = drawn_run(&[], script).output().unwrap();
    let (packets, rest) = drawn(&output.stderr);
    let (once, conclusion) = explained();
    assert_eq!(packets.len(), 2 * once.len());
    assert_eq!(rest.iter().filter(|line| *line == "findings").count(), 2);
    assert!(rest.len() > 2 * conclusion.len());
    let directory = String::from_utf8(output.stdout).unwrap();
    assert!(!PathBuf::from(directory.trim()).exists(), "{directory}");
}

#[test]
fn a_program_that_sends_nothing_draws_nothing() {
    let output = drawn_run(&[], "kill -TERM $$").output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(143), Vec::new()));
}

#[test]
fn a_ladder_and_a_capture_are_one_too_many() {
    let output = drawn_run(&["--pcap", "x.pcapng"], "exit").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("'--ladder' cannot be used with '--pcap"), "{said}");
}
