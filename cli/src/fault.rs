//! `roce fault`: fault rules for a running program.

use std::path::{Path, PathBuf};

use roce::{control, faults::FaultRules};

use crate::{failure::Failure, output::outln};

/// Give fault rules to a running program, list them, or remove them.
///
/// The program was started by `roce run --control`, or has ROCE_CONTROL=1 in its environment.
/// Rules are those of `roce run --fault` (docs/guide/faults.md). Without --pid and --socket, the
/// processes that take rules are printed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The process
    #[arg(short, long, value_name = "PID", conflicts_with = "socket")]
    pid: Option<u32>,
    /// The control socket, if ROCE_CONTROL names one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Rules such as "drop 1%"; list; clear; clear NUMBER
    ///
    /// list prints each rule with its number, its hits and its matches; clear removes all rules, or
    /// one.
    #[arg(value_name = "RULE|list|clear")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (path, who) = match (&args.socket, args.pid) {
        (Some(path), _) => (path.clone(), path.display().to_string()),
        (None, Some(pid)) => (control::of_process(pid)?, format!("process {pid}")),
        (None, None) if !args.command.is_empty() => {
            return Err(
                "name the process: --pid PID; `roce fault` alone shows which there are".into()
            );
        }
        (None, None) => {
            let processes = control::processes();
            if processes.is_empty() {
                return Err("no process takes rules: start one with `roce run --control`".into());
            }
            processes.iter().for_each(|pid| outln!("{pid}"));
            return Ok(());
        }
    };
    let command = match args.command.join(" ") {
        command if command.is_empty() => "list".to_owned(),
        command => command,
    };
    let first = command.split_whitespace().next().unwrap_or_default();
    if !["list", "clear"].contains(&first) {
        command.parse::<FaultRules>()?;
    }
    for line in ask(&path, &who, &command)? {
        outln!("{line}");
    }
    Ok(())
}

fn ask(path: &Path, who: &str, command: &str) -> Result<Vec<String>, Failure> {
    let answer = control::ask(path, command).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            format!("{who} takes no rules: it has ended, or `roce run --control` did not start it")
        }
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            format!("{who} does not trust this process, or has ended")
        }
        _ => format!("{who} does not answer: {error}"),
    })?;
    Ok(answer?)
}
