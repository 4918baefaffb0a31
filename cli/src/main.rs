//! The `roce` tool.

#[cfg(target_os = "linux")]
mod common;
mod completions;
#[cfg(target_os = "linux")]
mod conform;
#[cfg(target_os = "linux")]
mod datagrams;
mod demo;
#[cfg(target_os = "linux")]
mod devinfo;
#[cfg(target_os = "linux")]
mod exchange;
mod explain;
mod failure;
#[cfg(target_os = "linux")]
mod fault;
mod ladder;
#[cfg(target_os = "linux")]
mod library;
mod manual;
mod markup;
#[cfg(target_os = "linux")]
mod mckey;
#[cfg(not(target_os = "linux"))]
mod non_linux;
mod output;
#[cfg(target_os = "linux")]
mod perf;
#[cfg(target_os = "linux")]
mod pingpong;
mod playground;
#[cfg(target_os = "linux")]
mod rping;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod share;
#[cfg(target_os = "linux")]
mod ucmatose;
#[cfg(target_os = "linux")]
mod udaddy;
#[cfg(target_os = "linux")]
mod unpack;

#[cfg(not(target_os = "linux"))]
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;
use output::errln;

const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

Commands:
{subcommands}

`roce COMMAND -h`: short; `--help`: complete; `--version`
";

/// RDMA without hardware: a RoCEv2 adapter in user space.
///
/// Every command opens its own devices, without kernel module, daemon or privilege. A device sends
/// and receives RoCEv2 packets on UDP port 4791 of this host's addresses. Its peers are other roce
/// programs, the Linux kernel's rxe, and RDMA network adapters.
#[derive(Parser)]
#[command(name = "roce", version, help_template = TEMPLATE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Completions(completions::Args),
    #[cfg(target_os = "linux")]
    Conform(Box<conform::Args>),
    Demo(demo::Args),
    #[cfg(target_os = "linux")]
    Devinfo(devinfo::Args),
    Explain(explain::Args),
    #[cfg(target_os = "linux")]
    Fault(fault::Args),
    #[command(hide = true)]
    Manual(manual::Args),
    #[cfg(target_os = "linux")]
    Mckey(mckey::Args),
    #[cfg(target_os = "linux")]
    Perf(perf::Args),
    #[cfg(target_os = "linux")]
    Pingpong(pingpong::Args),
    Playground(playground::Args),
    #[cfg(target_os = "linux")]
    Rping(rping::Args),
    #[cfg(target_os = "linux")]
    Run(run::Args),
    #[cfg(target_os = "linux")]
    Share(share::Args),
    #[cfg(target_os = "linux")]
    Ucmatose(ucmatose::Args),
    #[cfg(target_os = "linux")]
    Udaddy(udaddy::Args),
    #[cfg(target_os = "linux")]
    Unpack(unpack::Args),
    #[cfg(not(target_os = "linux"))]
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    #[cfg(target_os = "linux")]
    if let Err(error) = roce::environment::init_log() {
        return report(Err(error.into()));
    }
    let result = match command {
        Command::Completions(args) => completions::run(&args, Cli::command()),
        #[cfg(target_os = "linux")]
        Command::Conform(args) => return report(conform::run(&args)),
        Command::Demo(args) => demo::run(&args),
        #[cfg(target_os = "linux")]
        Command::Devinfo(args) => devinfo::run(&args),
        Command::Explain(args) => explain::run(&args),
        #[cfg(target_os = "linux")]
        Command::Fault(args) => fault::run(&args),
        Command::Manual(args) => manual::run(&args, Cli::command()),
        #[cfg(target_os = "linux")]
        Command::Mckey(args) => mckey::run(&args),
        #[cfg(target_os = "linux")]
        Command::Perf(args) => perf::run(&args),
        #[cfg(target_os = "linux")]
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Playground(args) => playground::run(&args),
        #[cfg(target_os = "linux")]
        Command::Rping(args) => rping::run(args),
        #[cfg(target_os = "linux")]
        Command::Run(args) => return run::run(&args),
        #[cfg(target_os = "linux")]
        Command::Share(args) => share::run(&args),
        #[cfg(target_os = "linux")]
        Command::Ucmatose(args) => ucmatose::run(&args),
        #[cfg(target_os = "linux")]
        Command::Udaddy(args) => udaddy::run(&args),
        #[cfg(target_os = "linux")]
        Command::Unpack(args) => unpack::run(&args),
        #[cfg(not(target_os = "linux"))]
        Command::Other(words) => non_linux::refuse(&words),
    };
    report(result.map(|()| ExitCode::SUCCESS))
}

fn report(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|error| {
        errln!("roce: {error}");
        ExitCode::FAILURE
    })
}
