//! The `roce` command-line tool.

mod common;
mod completions;
mod datagrams;
mod demo;
mod devinfo;
mod explain;
mod failure;
mod fault;
mod ladder;
mod library;
mod manual;
mod mckey;
mod output;
mod pingpong;
mod playground;
mod rping;
mod run;
mod ucmatose;
mod udaddy;
mod unpack;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use output::errln;

/// RDMA without hardware: a RoCEv2 adapter in software, in user space.
///
/// Every command opens devices of its own, which live as long as the command runs: no kernel
/// module, no daemon, no privilege. A device sends and receives RoCEv2 packets on UDP port 4791 of
/// this host's addresses, and talks to other roce programs, to the Linux kernel's rxe, and to RDMA
/// network adapters.
#[derive(Parser)]
#[command(name = "roce", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Completions(completions::Args),
    Demo(demo::Args),
    Devinfo(devinfo::Args),
    Explain(explain::Args),
    Fault(fault::Args),
    #[command(hide = true)]
    Manual(manual::Args),
    Mckey(mckey::Args),
    Pingpong(pingpong::Args),
    Playground(playground::Args),
    Rping(rping::Args),
    Run(run::Args),
    Ucmatose(ucmatose::Args),
    Udaddy(udaddy::Args),
    Unpack(unpack::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Err(error) = roce::environment::init_log() {
        errln!("roce: {error}");
        return ExitCode::FAILURE;
    }
    let result = match command {
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Demo(args) => demo::run(&args),
        Command::Devinfo(args) => devinfo::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Fault(args) => fault::run(&args),
        Command::Manual(args) => manual::run(&args, Cli::command()),
        Command::Mckey(args) => mckey::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Playground(args) => playground::run(&args),
        Command::Rping(args) => rping::run(args),
        Command::Run(args) => return run::run(&args),
        Command::Ucmatose(args) => ucmatose::run(&args),
        Command::Udaddy(args) => udaddy::run(&args),
        Command::Unpack(args) => unpack::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("roce: {error}");
            ExitCode::FAILURE
        }
    }
}
