//! Directories and files that nobody else can change.
//!
//! The dynamic linker executes what it finds in them, at any time. So nobody but this user and root
//! may be able to put something there, now or when a directory has been cleaned away: /tmp will
//! not do.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Why a directory does not serve.
pub(super) enum Unfit {
    /// Others can change this one, on the way to it.
    Open(PathBuf),
    /// Nothing in it can be executed.
    NoExec(PathBuf),
    System(PathBuf, io::Error),
}

impl Unfit {
    /// The system's error about this path.
    pub(super) fn system(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::System(path, error)
    }

    pub(super) fn advice(&self) -> String {
        match self {
            Self::Open(place) => format!(
                "others than you can change {}; set XDG_CACHE_HOME to a directory of your own that \
                 is not in /tmp, or use `chmod go-w` if that one is yours",
                place.display()
            ),
            Self::NoExec(place) => format!(
                "{} is mounted noexec, so that no library can be loaded from there; set \
                 XDG_CACHE_HOME to a directory of your own that is not",
                place.display()
            ),
            Self::System(place, error) => format!(
                "{}: {error}; set XDG_CACHE_HOME to a directory of your own",
                place.display()
            ),
        }
    }
}

/// Looks whether this user and root alone can change what a path without links leads to: nobody
/// else owns or can write any directory on it.
pub(super) fn check(path: &Path) -> Result<(), Unfit> {
    for part in path.ancestors() {
        let metadata = fs::symlink_metadata(part).map_err(Unfit::system(part))?;
        if !metadata.is_dir() || !is_own(&metadata).map_err(Unfit::system(part))? {
            return Err(Unfit::Open(part.to_owned()));
        }
    }
    Ok(())
}

/// Makes the directory, if it is not there, and looks whether it is as [`check`] wants it.
pub(super) fn make(directory: &Path) -> Result<(), Unfit> {
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if fs::symlink_metadata(directory).is_err() => {
            Err(Unfit::system(directory)(error))
        }
        _ => check(directory),
    }
}

/// True of a file, by a path without links, that nobody else can change or replace.
pub(super) fn holds(file: &Path) -> bool {
    let own = fs::symlink_metadata(file).and_then(|metadata| is_own(&metadata));
    own.unwrap_or(false) && file.parent().is_some_and(|place| check(place).is_ok())
}

/// The owner of / is root, whatever number a user namespace shows.
fn is_own(metadata: &Metadata) -> io::Result<bool> {
    let trusted = [rustix::process::geteuid().as_raw(), 0, fs::metadata("/")?.uid()];
    Ok(trusted.contains(&metadata.uid()) && metadata.mode() & 0o022 == 0)
}
