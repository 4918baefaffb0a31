//! The programs of `tests/wrong`, one mistake each: reported, and silent once repaired.
//!
//! First lines of a program:
//!
//! - `finding: NAME`, of `ROCE_CHECK`, optionally `stacks: NAME, NAME`, each in the program;
//! - `explained: CAUSE, CAUSE`, of `ROCE_EXPLAIN`, optionally `says: TEXT`;
//! - `advice: NAME`, of `ROCE_CHECK`, which keeps the exit status;
//! - `fails with: WORD`: this word in `ROCE_CHECK` makes the program fail.

use std::{
    fs, panic,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use serde_json::Value;

use super::{FOUND, Program, common, common::Directory, declarations, sources};

const FAILED: i32 = 1;
/// Most of them wait.
const AT_A_TIME: usize = 4;

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/wrong")
}

/// `None` without a compiler.
pub(crate) fn compile(name: &str, is_repaired: bool) -> Option<Program> {
    let (compiler, headers) = (common::compiler()?, Directory::new());
    let mut options = declarations(&headers);
    options.push(format!("-I{}", sources().display()));
    if is_repaired {
        options.push("-DREPAIRED".to_owned());
    }
    Some(Program::compile(&compiler, &options, &directory().join(format!("{name}.c")), false))
}

enum Wanted {
    Finding { finding: String, is_advice: bool, stacks: Vec<String> },
    Explained { causes: Vec<String>, says: Option<String> },
    FailsWith(String),
}

impl Wanted {
    fn of(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let lines = text.lines().take(3).map(|line| line.trim_start_matches("/*").trim());
            let mut values = lines.filter_map(|line| line.strip_prefix(key));
            values.next().map(|value| value.trim().to_owned())
        };
        let list = |key: &str| -> Option<Vec<String>> {
            Some(value(key)?.split(", ").map(str::to_owned).collect())
        };
        let finding = |key: &str, is_advice: bool| {
            let (finding, stacks) = (value(key)?, list("stacks:").unwrap_or_default());
            Some(Self::Finding { finding, is_advice, stacks })
        };
        finding("finding:", false)
            .or_else(|| finding("advice:", true))
            .or_else(|| value("fails with:").map(Self::FailsWith))
            .or_else(|| {
                let (causes, says) = (list("explained:")?, value("says:"));
                Some(Self::Explained { causes, says })
            })
    }

    /// With the mistake.
    fn check(&self, name: &str, program: &Program) {
        match self {
            Self::Finding { finding, is_advice, stacks: wanted } => {
                let status = if *is_advice { 0 } else { FOUND };
                let lines = program.run(&[("ROCE_CHECK", "json")], status).stderr;
                let (findings, summary) = found(&lines);
                let names: Vec<_> =
                    findings.iter().map(|found| found["finding"].as_str()).collect();
                let is_all = !names.is_empty() && names.iter().all(|name| *name == Some(finding));
                assert!(is_all, "{name}: {lines}");
                assert_eq!(summary["summary"][0]["finding"], **finding, "{name}");
                assert_eq!(findings[0]["advice"], *is_advice, "{name}");
                let is_own = |frame: &Value| {
                    let place = frame["place"].as_str().unwrap();
                    place.contains(&format!("wrong/{name}.c:"))
                };
                let is_own = |stack: &Value| stack["frames"].as_array().unwrap().iter().any(is_own);
                let stacks = findings[0]["stacks"].as_array().unwrap();
                assert!(is_own(&stacks[0]), "{name}: {stacks:?}");
                for wanted in wanted {
                    let is_it = |stack: &Value| stack["what"] == **wanted && is_own(stack);
                    assert!(stacks.iter().any(is_it), "{name}: no {wanted} in {stacks:?}");
                }
            }
            Self::Explained { causes, says } => {
                let lines = program.run(&[("ROCE_EXPLAIN", "json")], 0).stderr;
                let objects = objects(&lines);
                let has = |cause: &str| objects.iter().any(|object| object["cause"] == cause);
                for cause in causes {
                    assert!(has(cause), "{name}: no {cause} in {lines}");
                }
                // the other queue pair's, and consequences
                let follows = ["cq_overrun", "flushed"];
                let known = |object: &Value| {
                    let names = causes.iter().map(String::as_str).chain(follows);
                    names.into_iter().any(|cause| object["cause"] == cause)
                };
                assert_eq!(objects.iter().find(|object| !known(object)), None, "{name}");
                let is_placed = |object: &&Value| {
                    let what = object["what"].as_str().unwrap_or_default();
                    !object["errno"].is_null() || what.starts_with("ibv_post")
                };
                for object in objects.iter().filter(is_placed) {
                    let at = object["at"].as_str().unwrap_or_default();
                    assert!(at.contains("(wrong/"), "{name}: {object}");
                }
                if let Some(says) = says {
                    assert!(lines.contains(&says.replace('"', "\\\"")), "{name}: {lines}");
                }
                assert_eq!(program.run(&[], 0).stderr, "", "{name}: not asked for");
            }
            Self::FailsWith(word) => {
                let words = words(word);
                let said = program.run(&[("ROCE_CHECK", &words)], FAILED).stderr;
                assert!(said.contains(": not so: "), "{name}: {said}");
            }
        }
    }

    fn check_repaired(&self, name: &str, program: &Program) {
        match self {
            Self::Explained { .. } => {
                let said = program.run(&[("ROCE_EXPLAIN", "json")], 0).stderr;
                assert_eq!(said, "", "{name}, repaired");
            }
            Self::Finding { .. } | Self::FailsWith(_) => {
                let words = match self {
                    Self::FailsWith(word) => words(word),
                    _ => words("json"),
                };
                let lines = program.run(&[("ROCE_CHECK", &words)], 0).stderr;
                let (findings, summary) = found(&lines);
                let number = summary["summary"].as_array().map(Vec::len);
                assert_eq!((findings.len(), number), (0, Some(0)), "{name}, repaired: {lines}");
            }
        }
    }
}

/// `ROCE_CHECK` for a word.
fn words(word: &str) -> String {
    match word {
        "json" => word.to_owned(),
        late => format!("json,{late},seed=1"),
    }
}

fn objects(lines: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    lines.lines().map(parse).collect()
}

fn found(lines: &str) -> (Vec<Value>, Value) {
    let mut objects = objects(lines);
    let summary = objects.pop().unwrap_or_default();
    (objects, summary)
}

#[test]
fn each_mistake_is_found_and_its_repair_is_clean() {
    let mut programs: Vec<PathBuf> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    programs.sort();
    assert!(programs.len() >= 60);
    if common::compiler().is_none() {
        println!("no C compiler is installed: nothing was run");
        return;
    }
    let (left, failed) = (Mutex::new(programs), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let Some(path) = left.lock().unwrap().pop() else { break };
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            // every failure
            let play = || {
                let wanted = Wanted::of(&fs::read_to_string(&path).unwrap()).unwrap();
                wanted.check(&name, &compile(&name, false).unwrap());
                wanted.check_repaired(&name, &compile(&name, true).unwrap());
            };
            if panic::catch_unwind(play).is_err() {
                failed.lock().unwrap().push(name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    assert_eq!(failed.into_inner().unwrap(), [""; 0]);
}
