//! Tasks of this repository that cargo does not know: `cargo xtask dist` builds the packages.

mod build;
mod contents;
mod deb;
mod dist;
mod formula;
mod metadata;
mod rpm;
mod soname;
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
}

fn main() -> ExitCode {
    let Task::Dist(args) = Task::parse();
    match dist::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask dist: {error}");
            ExitCode::FAILURE
        }
    }
}
