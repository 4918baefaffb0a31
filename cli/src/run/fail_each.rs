//! `--fail-each`: one run per call of a program, with that call failing.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use roce::{
    environment::{CALLS, CHECK, FAULT},
    faults::{CallId, error_of},
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use super::refusal::{NOT_EXECUTABLE, Refusal};
use crate::{
    failure::fail,
    output::{errln, outln},
};

/// `--check` found something in a program that ended with 0.
const FOUND: i32 = 99;
const CRASHES: [(i32, &str); 7] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGSYS, "SIGSYS"),
];
/// Limit of examined output per run.
const LONGEST: u64 = 16 << 20;

/// Runs in which each call fails in its turn.
#[derive(clap::Args)]
pub(super) struct EachArgs {
    /// Run once for each call, with that call failing
    ///
    /// Prints how each run ends: crashes, hangs, leaked objects. json: one object a line.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text", value_parser = ["text", "json"], hide_possible_values = true)]
    #[arg(conflicts_with_all = ["fault", "check", "reaper", "control"])]
    pub(super) fail_each: Option<String>,
    /// With --fail-each: fail the first NUMBER calls of a kind
    #[arg(long, value_name = "NUMBER", requires = "fail_each", default_value_t = 3)]
    #[arg(hide_short_help = true)]
    most: u32,
    /// With --fail-each: seconds of a run
    #[arg(long, value_name = "SECONDS", requires = "fail_each", default_value_t = 10)]
    #[arg(hide_short_help = true)]
    time_limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Exit(i32),
    Signal(i32),
    /// Timeout.
    Hang,
}

impl End {
    fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(FOUND) => Self::Exit(0), // findings are reported apart
            Some(code) => Self::Exit(code),
            None => Self::Signal(status.signal().unwrap_or(0)),
        }
    }

    fn crash(self) -> Option<&'static str> {
        let Self::Signal(signal) = self else { return None };
        CRASHES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
    }

    fn text(self) -> String {
        match self {
            Self::Exit(code) => format!("exit {code}"),
            Self::Signal(number) => self
                .crash()
                .map_or_else(|| format!("signal {number}"), |name| format!("crash {name}")),
            Self::Hang => "hang".to_owned(),
        }
    }
}

struct Run {
    end: End,
    calls: Vec<u32>,
    failed: u32,
    findings: Vec<Found>,
    /// Report of a panic in `roce`.
    panic: Option<String>,
}

pub(super) fn run(args: &EachArgs, command: impl Fn() -> Command) -> Result<ExitCode, Refusal> {
    let limit = Duration::from_secs(args.time_limit.max(1));
    let refuse = |error: io::Error| Refusal { status: NOT_EXECUTABLE, line: error.to_string() };
    let whole = run_once(limit, command(), None).map_err(refuse)?;
    if whole.end == End::Hang {
        fail!(
            "without a failing call, the program does not end in {} s; give it less work, or raise \
             --time-limit",
            limit.as_secs()
        );
    }
    let mut report = Report::new(args.fail_each.as_deref() == Some("json"), &whole);
    for call in CallId::all() {
        let made = whole.calls.get(call.number()).copied().unwrap_or(0);
        for nth in 1..=made.min(args.most) {
            let rule = format!("fail {} nth {nth}", call.failing().name);
            let run = run_once(limit, command(), Some(&rule)).map_err(refuse)?;
            report.add(call, nth, &run);
        }
    }
    Ok(report.end(&whole))
}

fn run_once(limit: Duration, mut command: Command, rule: Option<&str>) -> io::Result<Run> {
    let directory = tempfile::tempdir()?;
    command.env(CALLS, directory.path()).env(CHECK, "json").env_remove(FAULT);
    if let Some(rule) = rule {
        command.env(FAULT, rule);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let stderr = child.stderr.take();
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        if let Some(stderr) = stderr {
            let _ = stderr.take(LONGEST).read_to_end(&mut said);
        }
        String::from_utf8_lossy(&said).into_owned()
    });
    let end = wait(&mut child, limit)?;
    let said = reader.join().unwrap_or_default();
    let (calls, failed) = counts(directory.path())?;
    let panic = said.lines().find(|line| line.contains("' panicked at ")).map(str::to_owned);
    Ok(Run { end, calls, failed, findings: findings(&said), panic })
}

/// Kills the program's descendants, too.
fn wait(child: &mut Child, limit: Duration) -> io::Result<End> {
    let until = Instant::now() + limit;
    let end = loop {
        match child.try_wait()? {
            Some(status) => break End::of(status),
            None if Instant::now() >= until => break End::Hang,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    Ok(end)
}

/// Per call the most of any process, and all failed calls.
fn counts(directory: &Path) -> io::Result<(Vec<u32>, u32)> {
    let (mut calls, mut failed) = (vec![0; CallId::COUNT], 0);
    for entry in fs::read_dir(directory)? {
        let bytes = fs::read(entry?.path())?;
        let (words, _) = bytes.as_chunks();
        let words: Vec<_> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        for (most, number) in calls.iter_mut().zip(&words) {
            *most = (*most).max(*number);
        }
        failed += words.get(CallId::COUNT).copied().unwrap_or(0);
    }
    Ok((calls, failed))
}

#[derive(Clone, Debug)]
struct Found {
    kind: String,
    what: String,
    /// Innermost first.
    stack: Value,
}

impl Found {
    /// True for the same mistake: queue pair numbers differ between runs.
    fn is_like(&self, other: &Self) -> bool {
        let is_alive = self.kind == "object_alive";
        self.kind == other.kind
            && self.stack == other.stack
            && (!is_alive || self.what == other.what)
    }
}

fn findings(said: &str) -> Vec<Found> {
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    said.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.trim()).ok())
        .filter_map(|value| {
            let what = text(&value, "what").unwrap_or_default();
            let stack = value["stacks"][0]["frames"].clone();
            Some(Found { kind: text(&value, "finding")?, what, stack })
        })
        .collect()
}

struct Report {
    is_json: bool,
    /// Findings without a failing call.
    usual: Vec<Found>,
    runs: u32,
    ends: BTreeMap<&'static str, u32>,
    panics: Vec<String>,
}

impl Report {
    fn new(is_json: bool, whole: &Run) -> Self {
        let calls: u32 = whole.calls.iter().sum();
        let kinds = whole.calls.iter().filter(|number| **number > 0).count();
        if is_json {
            let object = json!({ "calls": calls, "kinds": kinds, "end": whole.end.text() });
            outln!("{object}");
        } else {
            outln!("without a failing call: {calls} calls of {kinds} kinds, {}", whole.end.text());
            outln!("{:<34} {:<14} {:<15} left or found", "call", "error", "end");
        }
        let usual = whole.findings.clone();
        Self { is_json, usual, runs: 0, ends: BTreeMap::new(), panics: Vec::new() }
    }

    fn add(&mut self, call: CallId, nth: u32, run: &Run) {
        self.runs += 1;
        let (_, errno) = error_of(call, None);
        let name = call.failing().name;
        let is_usual = |found: &&Found| self.usual.iter().any(|usual| usual.is_like(found));
        let new: Vec<_> = run.findings.iter().filter(|found| !is_usual(found)).collect();
        let key = match run.end {
            _ if run.panic.is_some() => "crashed in roce",
            End::Hang => "hung",
            end if end.crash().is_some() => "crashed",
            _ if run.failed == 0 => "ended before this call",
            End::Exit(0) => "continued, exit status 0",
            _ => "ended with an error",
        };
        *self.ends.entry(key).or_default() += 1;
        self.panics.extend(run.panic.clone());
        let (end, reached) = (run.end.text(), run.failed > 0);
        if self.is_json {
            let found: Vec<_> =
                new.iter().map(|new| json!({ "finding": new.kind, "what": new.what })).collect();
            let object = json!({
                "call": name, "nth": nth, "errno": errno, "end": end, "reached": reached,
                "found": found, "panic": run.panic,
            });
            outln!("{object}");
            return;
        }
        let found: Vec<_> = new
            .iter()
            .map(|new| if new.kind == "object_alive" { &*new.what } else { &*new.kind })
            .collect();
        let found = if reached { found.join(", ") } else { "(the call was not made)".to_owned() };
        outln!("{:<34} {errno:<14} {end:<15} {found}", format!("{name} nth {nth}"));
    }

    fn end(self, whole: &Run) -> ExitCode {
        let bad: u32 = ["crashed in roce", "crashed", "hung"]
            .iter()
            .filter_map(|key| self.ends.get(key))
            .sum();
        if self.is_json {
            outln!("{}", json!({ "runs": self.runs, "ends": self.ends }));
        } else {
            let ends: Vec<_> =
                self.ends.iter().map(|(key, number)| format!("{number} {key}")).collect();
            outln!("{} runs: {}", self.runs, ends.join(", "));
        }
        self.panics.iter().for_each(|line| errln!("roce: {line}"));
        if self.runs == 0 && whole.calls.iter().all(|number| *number == 0) {
            errln!("roce: the program makes no call of libibverbs or librdmacm");
        }
        ExitCode::from(u8::from(bad > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let of = |wait: i32| End::of(ExitStatus::from_raw(wait));
        assert_eq!(of(0), End::Exit(0));
        assert_eq!(of(FOUND << 8), End::Exit(0));
        assert_eq!(of(3 << 8).text(), "exit 3");
        assert_eq!(of(libc::SIGSEGV).text(), "crash SIGSEGV");
        assert_eq!(of(libc::SIGTERM).text(), format!("signal {}", libc::SIGTERM));
        assert!(of(libc::SIGTERM).crash().is_none());
    }

    #[test]
    fn findings_are_read_from_among_other_lines() {
        let said =
            "hello\n{\"finding\":\"object_alive\",\"what\":\"2 × ibv_mr\"}\n{\"summary\":[]}\n{";
        let [found] = &findings(said)[..] else { panic!("one") };
        assert_eq!((&*found.kind, &*found.what), ("object_alive", "2 × ibv_mr"));
    }

    #[test]
    fn a_mistake_is_the_same_whatever_the_numbers_are() {
        let found = |kind: &str, qpn: &str, line: u32| {
            let line = format!(
                "{{\"finding\":\"{kind}\",\"what\":\"qp {qpn}\",\"stacks\":\
                 [{{\"frames\":[{{\"place\":\"a.c:{line}\"}}]}}]}}"
            );
            findings(&line).remove(0)
        };
        let first = found("timeout_zero", "0x1", 7);
        assert!(first.is_like(&found("timeout_zero", "0x2", 7)));
        assert!(!first.is_like(&found("timeout_zero", "0x1", 8)));
        assert!(!first.is_like(&found("retry_zero", "0x1", 7)));
        assert!(!found("object_alive", "1", 7).is_like(&found("object_alive", "2", 7)));
    }
}
