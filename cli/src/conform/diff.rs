use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::Value;

use crate::{failure::Failure, output::outln};

/// Compare two results of `roce conform --json`.
///
/// Prints the cases whose verdicts differ. The exit status is 3 if there are any.
#[derive(clap::Args)]
pub(super) struct Args {
    /// First result
    a: PathBuf,
    /// Second result
    b: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let [(first, a), (second, b)] = [read(&args.a)?, read(&args.b)?];
    outln!("{:<40} {:<16} {}", "", first, second);
    let mut names: Vec<_> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    let mut differences = 0;
    for name in names {
        let [a, b] = [&a, &b].map(|side| side.get(name).map_or("-", String::as_str));
        if a != b {
            outln!("{name:<40} {a:<16} {b}");
            differences += 1;
        }
    }
    outln!("{differences} cases differ");
    Ok(if differences > 0 { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn read(path: &Path) -> Result<(String, BTreeMap<String, String>), Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let wrong = || {
        let path = path.display();
        format!("{path} is not a result; write one with `roce conform ADDRESS --json > {path}`")
    };
    let value: Value = serde_json::from_str(&text).map_err(|_| wrong())?;
    let device = value["device"].as_str().ok_or_else(wrong)?.to_owned();
    let cases = value["cases"].as_array().ok_or_else(wrong)?;
    let verdict = |case: &Value| {
        Some((case["name"].as_str()?.to_owned(), case["verdict"].as_str()?.to_owned()))
    };
    let cases = cases.iter().map(verdict).collect::<Option<_>>().ok_or_else(wrong)?;
    Ok((device, cases))
}
