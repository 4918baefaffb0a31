//! `roce fault`: rules for a program that runs.

use std::path::{Path, PathBuf};

use roce::{control, faults::FaultRules};

use crate::{failure::Failure, output::outln};

/// Give rules to a program that runs, take them away, or show how often they have hit.
///
/// The program is one that `roce run --control` has started, or whose environment has
/// ROCE_CONTROL=1. Rules are those of `roce run --fault`: for packets (docs/guide/faults.md) and
/// for calls (docs/guide/failing.md). Without a rule, list or clear, the processes are shown that
/// take rules.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The process
    #[arg(short, long, value_name = "PID", conflicts_with = "socket")]
    pid: Option<u32>,
    /// The socket where it takes rules, if ROCE_CONTROL names one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Rules ("fail create_cq once, drop 1%"); list: each rule with its number, how often it has
    /// hit, and of how many; clear: take all of them away; clear NUMBER: take one away
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
