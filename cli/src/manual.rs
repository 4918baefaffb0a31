use std::{fs, path::PathBuf};

use crate::failure::Failure;

/// Write the pages of man, one for each command, into a directory.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: &Args, tool: clap::Command) -> Result<(), Failure> {
    let written = fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(tool, &args.directory));
    Ok(written.map_err(|error| format!("cannot write to {}: {error}", args.directory.display()))?)
}
