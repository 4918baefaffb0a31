//! Findings on stderr, each once, and a summary.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::PathBuf,
    process,
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use roce_provider::{
    CheckForm,
    environment::{self, CHECK_SUPPRESSIONS},
    report::{Caller, Callers, Report, line, line_of},
    signals,
};
use serde_json::json;

use super::{
    finding::{Finding, Kind},
    form,
    sarif::{self, Found},
    stack::{Frame, Stack},
    suppressions::Suppressions,
};
use crate::sync::Mutex;

/// Most reported; more are counted.
const MOST: usize = 100;

static FINDINGS: Mutex<Findings> = Mutex::new(Findings { process: 0, places: BTreeMap::new() });

struct Findings {
    /// A forked child starts empty.
    process: u32,
    places: BTreeMap<Key, Occurrence>,
}

/// Kind, place, and for live objects their names.
type Key = (Kind, Stack, Option<String>);

struct Occurrence {
    times: u32,
    /// Program's caller, for the summary; `None`: suppressed.
    shown: Option<String>,
    found: Option<Found>,
}

/// Failed completions that the program has polled.
pub(super) static FAILED: AtomicU32 = AtomicU32::new(0);

/// Findings made under a lock.
static POSTPONED: Mutex<Vec<Finding>> = Mutex::new(Vec::new());
static ARE_POSTPONED: AtomicBool = AtomicBool::new(false);

static SUPPRESSIONS: LazyLock<Suppressions> = LazyLock::new(|| {
    let Some(path) = suppressions_file() else { return Suppressions::default() };
    let (lines, wrong) = Suppressions::read(&path);
    for wrong in wrong {
        line(format_args!("{CHECK_SUPPRESSIONS}: {wrong}"));
    }
    lines
});

fn suppressions_file() -> Option<PathBuf> {
    environment::value(CHECK_SUPPRESSIONS).map(PathBuf::from)
}

/// Reports a finding once. Call without engine locks.
#[cold]
pub(crate) fn emit(finding: &Finding) {
    let Some(form) = form::form() else { return };
    // a signal that ends the program needs the lock for its report
    signals::blocked(|| add(form, finding));
}

/// Reports a finding [about](Finding::here) the program's current call.
#[cold]
pub(crate) fn emit_here(kind: Kind, done: &'static str, what: String) {
    emit(&Finding::here(kind, done, what, None));
}

fn add(form: CheckForm, finding: &Finding) {
    let mut findings = FINDINGS.lock();
    findings.begin();
    let stack = finding.stacks.first().map_or_else(Stack::none, |(_, stack)| stack.clone());
    let is_alive = finding.kind == Kind::ObjectAlive;
    let key = (finding.kind, stack.place(), is_alive.then(|| finding.what.clone()));
    if let Some(place) = findings.places.get_mut(&key) {
        place.times += 1;
        return;
    }
    let stacks: Vec<_> =
        finding.stacks.iter().map(|(name, stack)| (*name, stack.frames())).collect();
    let frames = stacks.first().map_or(&[][..], |(_, frames)| frames);
    let shown = (!SUPPRESSIONS.cover(finding.kind, frames)).then(|| own_caller(frames));
    let is_shown = shown.is_some() && findings.places.len() < MOST;
    let text = (is_shown && form != CheckForm::Sarif)
        .then(|| report(finding, &stacks).in_form(form == CheckForm::Json));
    let own = own(frames).unwrap_or(0);
    let found = (form == CheckForm::Sarif).then(|| Found {
        finding: finding.clone(),
        own,
        is_suppressed: shown.is_none(),
        times: 1,
        stacks,
    });
    findings.places.insert(key, Occurrence { times: 1, shown, found });
    if let Some(text) = text {
        form::write(&text);
    }
}

/// Never waits: a forked child may inherit a held lock.
pub(super) fn has_findings() -> bool {
    FINDINGS
        .try_lock()
        .is_some_and(|findings| findings.process == process::id() && !findings.places.is_empty())
}

/// Queues for [`report_postponed`]; for callers with locks.
pub(super) fn postpone(finding: Finding) {
    POSTPONED.lock().push(finding);
    ARE_POSTPONED.store(true, Ordering::Release);
}

pub(crate) fn report_postponed() {
    if ARE_POSTPONED.swap(false, Ordering::Acquire) {
        let postponed = std::mem::take(&mut *POSTPONED.lock());
        postponed.iter().for_each(emit);
    }
}

/// Returns the number of findings, advice excluded. `has_failed`: the program.
pub(super) fn summarize(has_failed: bool) -> usize {
    let (Some(form), Some(checks)) = (form::form(), form::ASKED.as_ref()) else { return 0 };
    let mut findings = FINDINGS.lock();
    findings.begin();
    let documented: Vec<_> = findings
        .places
        .values_mut()
        .filter_map(|place| Some(Found { times: place.times, ..place.found.take()? }))
        .collect();
    let shown: Vec<_> = findings
        .places
        .iter()
        .filter_map(|((kind, ..), place)| Some((kind.name(), place.shown.as_ref()?, place.times)))
        .collect();
    let suppressed = findings.places.len() - shown.len();
    let advice = findings
        .places
        .iter()
        .filter(|((kind, ..), place)| kind.is_advice() && place.shown.is_some());
    let number = shown.len() - advice.count();
    let unused = SUPPRESSIONS.unused();
    let failed = if has_failed { FAILED.load(Ordering::Relaxed) } else { 0 };
    let text = match form {
        CheckForm::Sarif => {
            let file = suppressions_file().unwrap_or_default();
            sarif::document(&documented, checks, (file.as_path(), unused.as_slice()))
        }
        CheckForm::Json => {
            let list: Vec<_> = shown
                .iter()
                .map(|(kind, at, times)| json!({ "finding": kind, "at": at, "times": times }))
                .collect();
            let mut summary = json!({ "summary": list, "suppressed": suppressed });
            if !unused.is_empty() {
                summary["unused_suppressions"] = unused.into();
            }
            if failed > 0 {
                summary["failed_completions"] = failed.into();
            }
            if checks.are_late() {
                summary["seed"] = checks.seed().into();
            }
            line_of(&summary)
        }
        CheckForm::Text => {
            let mut text = match number {
                0 => "roce check: no findings".to_owned(),
                1 => "roce check: 1 finding".to_owned(),
                number => format!("roce check: {number} findings"),
            };
            if shown.len() > number {
                let _ = write!(text, ", advice: {}", shown.len() - number);
            }
            if suppressed > 0 {
                let _ = write!(text, ", {suppressed} suppressed");
            }
            text.push('\n');
            for (kind, at, times) in &shown {
                let _ = writeln!(text, "  {times:>5} × {kind}  {at}");
            }
            if !unused.is_empty() {
                let lines: Vec<_> = unused.iter().map(usize::to_string).collect();
                let lines = lines.join(", ");
                let _ = writeln!(text, "  unused lines of the suppressions: {lines}");
            }
            if failed > 0 {
                let _ = writeln!(
                    text,
                    "  {failed} completions failed: of these, only wr_id, status, vendor_err and \
                     qp_num are valid, and opcode was overwritten"
                );
            }
            text
        }
    };
    drop(findings);
    form::write(&text);
    number
}

impl Findings {
    fn begin(&mut self) {
        let process = process::id();
        if self.process != process {
            self.process = process;
            self.places.clear();
        }
    }
}

pub(super) const CALLERS: Callers = Callers { here: Stack::number_here, name: name_of };

fn name_of(caller: Caller) -> Option<String> {
    let frames = Stack::of(caller)?.frames();
    own(&frames).map(|own| frames[own].to_string())
}

/// Innermost caller outside headers, the C library and bindings.
fn own(frames: &[Frame]) -> Option<usize> {
    let is_foreign = |frame: &Frame| {
        let (function, place) = (&frame.function, &frame.place);
        // programs use these names, too; resolved names have no offset
        let is_named = !function.contains('+')
            && ["ibv_", "rdma_"].iter().any(|start| function.starts_with(start));
        let is_header = ["infiniband/", "rdma/"].iter().any(|start| place.starts_with(start));
        let is_libc = ["libc.so", "libpthread.so", "libstdc++.so", "libgcc_s.so"]
            .iter()
            .any(|library| frame.object.starts_with(library));
        // a binding that Cython has compiled
        let is_binding = frame.object.contains(".cpython-")
            && (function.starts_with("__pyx_") || function.starts_with(&frame.object));
        is_named || is_header || is_libc || is_binding
    };
    frames.iter().position(|frame| !is_foreign(frame))
}

fn own_caller(frames: &[Frame]) -> String {
    frames.get(own(frames).unwrap_or(0)).map_or_else(|| "?".to_owned(), Frame::to_string)
}

fn report(finding: &Finding, stacks: &[(&'static str, Vec<Frame>)]) -> Report {
    let Finding { kind, what, .. } = finding;
    let is_advice = kind.is_advice();
    let frame = |frame: &Frame| json!({ "function": frame.function, "place": frame.place });
    let object = json!({
        "finding": kind.name(),
        "advice": is_advice,
        "what": what,
        "why": kind.rule(),
        "look": kind.advice(),
        "stacks": stacks.iter().map(|(name, frames)| json!({
            "what": name,
            "frames": frames.iter().map(frame).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    });
    let lines = |frames: &[Frame]| frames.iter().map(Frame::to_string).collect();
    Report {
        subject: "roce check".to_owned(),
        event: format!("{}{}: {what}", if is_advice { "advice: " } else { "" }, kind.name()),
        is_advice,
        facts: vec![("why", kind.rule().to_owned()), ("look", kind.advice().to_owned())],
        lists: stacks.iter().map(|(name, frames)| (*name, lines(frames))).collect(),
        end: None,
        object,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn example() -> (Finding, Vec<(&'static str, Vec<Frame>)>) {
        let frame = |function: &str, place: &str| Frame {
            function: function.to_owned(),
            place: place.to_owned(),
            source: None,
            object: "program".to_owned(),
        };
        let finding = Finding {
            kind: Kind::TimeoutZero,
            what: "qp 0x000012: ibv_modify_qp".to_owned(),
            stacks: vec![("called", Stack::none())],
        };
        let frames = vec![frame("ibv_x", "verbs.h:3"), frame("connect", "a.c:7")];
        (finding, vec![("called", frames), ("made", Vec::new())])
    }

    #[test]
    fn the_guide_lists_each_kind_and_no_other() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/mistakes.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, rest) = page.split_once("\nFindings:\n\n").unwrap();
        let (list, _) = rest.split_once("\n\n").unwrap();
        // remarks in parentheses name calls and members
        let outside = list.split('(').enumerate().map(|(at, part)| match at {
            0 => part,
            _ => part.split_once(')').unwrap().1,
        });
        let outside: String = outside.collect();
        let mut listed: Vec<_> = outside.split('`').skip(1).step_by(2).collect();
        let mut kinds: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        listed.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(listed, kinds);
    }

    #[test]
    fn text_says_what_why_where_to_look_and_where_it_was() {
        let (finding, stacks) = example();
        let text = report(&finding, &stacks).in_form(false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "roce check: timeout_zero: qp 0x000012: ibv_modify_qp");
        assert!(
            lines[1].starts_with("  why:  timeout is 0") && lines[2].starts_with("  look: set")
        );
        assert_eq!(lines[3..], ["  called:", "    ibv_x (verbs.h:3)", "    connect (a.c:7)"]);
        assert_eq!(own_caller(&stacks[0].1), "connect (a.c:7)");
    }

    #[test]
    fn headers_and_the_c_library_are_not_the_programs_own() {
        let frame = |function: &str, place: &str, object: &str| Frame {
            function: function.to_owned(),
            place: place.to_owned(),
            source: None,
            object: object.to_owned(),
        };
        let foreign = [
            frame("__ibv_reg_mr", "infiniband/verbs.h:2552", "program"),
            frame("rdma_post_send", "rdma/rdma_verbs.h:9", "program"),
            frame("libc.so.6+0x1234", "libc.so.6", "libc.so.6"),
            frame("__libc_fork", "posix/fork.c:51", "libc.so.6"),
        ];
        for foreign in foreign {
            let frames = [foreign, frame("send_all", "src/rdma.c:7", "program")];
            assert_eq!(own_caller(&frames), "send_all (src/rdma.c:7)");
        }
    }

    #[test]
    fn advice_is_called_so() {
        let (mut finding, stacks) = example();
        finding.kind = Kind::EachSignaled;
        let text = report(&finding, &stacks).in_form(false);
        assert!(text.starts_with("roce check: advice: each_request_signaled: qp"), "{text}");
        assert!(report(&finding, &stacks).in_form(true).contains("\"advice\":true"));
    }

    #[test]
    fn json_is_one_line_for_programs() {
        let (finding, stacks) = example();
        let line = report(&finding, &stacks).in_form(true);
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["finding"], "timeout_zero");
        assert_eq!(value["stacks"][0]["frames"][1]["place"], "a.c:7");
    }
}
