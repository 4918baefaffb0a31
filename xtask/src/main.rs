//! Tasks beyond cargo.

mod build;
mod contents;
mod deb;
mod dist;
mod formula;
mod metadata;
mod playground;
mod rpm;
mod site;
mod soname;
mod sums;
mod tarball;
mod wheel;

use std::{error::Error, process::ExitCode};

use clap::Parser;

/// One line that says what to do.
type Failure = Box<dyn Error>;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of this repository")]
enum Task {
    Dist(dist::Args),
    Playground(playground::Args),
    Site(site::Args),
}

fn main() -> ExitCode {
    let (name, result) = match Task::parse() {
        Task::Dist(args) => ("dist", dist::run(&args)),
        Task::Playground(args) => ("playground", playground::run(&args)),
        Task::Site(args) => ("site", site::run(&args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask {name}: {error}");
            ExitCode::FAILURE
        }
    }
}
