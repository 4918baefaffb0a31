use std::{io::ErrorKind, path::PathBuf};

use roce::{control, faults::FaultRules};

use crate::{failure::Failure, output::outln};

/// Set fault rules of a running program.
///
/// Lists, adds or removes rules of `roce run --fault` (docs/guide/faults.md). The program runs
/// under `roce run --control` or with ROCE_CONTROL=1. Without --pid and --socket, prints the
/// processes that take rules.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Process that takes rules
    #[arg(short, long, value_name = "PID", conflicts_with = "socket")]
    pid: Option<u32>,
    /// Control socket, if ROCE_CONTROL names one
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
                "no process is named; use --pid PID (`roce fault` alone lists the processes)"
                    .into(),
            );
        }
        (None, None) => {
            let processes = control::processes();
            if processes.is_empty() {
                return Err("no process takes rules; start one with `roce run --control`".into());
            }
            processes.iter().for_each(|pid| outln!("{pid}"));
            return Ok(());
        }
    };
    let words = args.command.join(" ");
    let command = if words.is_empty() { "list" } else { &words };
    let first = command.split_whitespace().next().unwrap_or_default();
    if !["list", "clear"].contains(&first) {
        command.parse::<FaultRules>()?;
    }
    let response = control::ask(&path, command).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            format!("{who} takes no rules: it has ended, or runs without `roce run --control`")
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            format!("{who} refuses this process, or has ended; run as the same user")
        }
        _ => format!("{who} does not respond: {error}"),
    })?;
    response?.iter().for_each(|line| outln!("{line}"));
    Ok(())
}
