use std::{collections::BTreeSet, path::PathBuf};

use crate::{failure::Failure, library, output::outln};

/// Unpack the C library for LD_LIBRARY_PATH.
///
/// Prints its directory: with it in LD_LIBRARY_PATH a program needs no `roce run`. With DIR, the
/// library is copied there: into an image, or a volume that a container shares.
///
/// Its folder `pkgconfig` is for PKG_CONFIG_PATH: programs that you build then link with roce.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory for the library, instead of the user's cache
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let directory = match &args.directory {
        Some(directory) => {
            let problem = |error| format!("cannot copy to {}: {error}", directory.display());
            let (library, sockets) = library::contents()?;
            library::copy(&library, sockets.as_deref(), directory).map_err(problem)?;
            library::describe(directory).map_err(problem)?;
            std::path::absolute(directory)?
        }
        None => {
            let directory = library::directory(&library::find(None)?, &BTreeSet::new())?;
            // A system directory is not writable, and programs do not need this.
            let _ = library::describe(&directory);
            directory
        }
    };
    outln!("{}", directory.display());
    Ok(())
}
