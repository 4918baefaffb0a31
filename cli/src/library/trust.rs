//! Directories and files that only this user and root can change, even after a cleanup: the dynamic
//! linker executes their contents. /tmp will not do.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

pub(super) enum Unfit {
    WritableByOthers(PathBuf),
    NoExec(PathBuf),
    System(PathBuf, io::Error),
}

impl Unfit {
    pub(super) fn system(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::System(path, error)
    }

    pub(super) fn advice(&self) -> String {
        match self {
            Self::WritableByOthers(place) => format!(
                "other users can write to {}; set XDG_CACHE_HOME to a directory that you own \
                 outside /tmp, or run `chmod go-w` on this one if it is yours",
                place.display()
            ),
            Self::NoExec(place) => format!(
                "{} is mounted noexec, so no library loads from it; set XDG_CACHE_HOME to a \
                 directory that you own on another file system",
                place.display()
            ),
            Self::System(place, error) => format!(
                "{}: {error}; set XDG_CACHE_HOME to a directory that you own",
                place.display()
            ),
        }
    }
}

/// Only this user and root own or can write any directory of `path`, which has no links.
pub(super) fn check(path: &Path) -> Result<(), Unfit> {
    for part in path.ancestors() {
        let metadata = fs::symlink_metadata(part).map_err(Unfit::system(part))?;
        if !metadata.is_dir() || !is_own(&metadata).map_err(Unfit::system(part))? {
            return Err(Unfit::WritableByOthers(part.to_owned()));
        }
    }
    Ok(())
}

pub(super) fn make(directory: &Path) -> Result<(), Unfit> {
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if fs::symlink_metadata(directory).is_err() => {
            Err(Unfit::system(directory)(error))
        }
        _ => check(directory),
    }
}

/// True for a file without links on its path that nobody else can change or replace.
pub(super) fn holds(file: &Path) -> bool {
    let own = fs::symlink_metadata(file).and_then(|metadata| is_own(&metadata));
    own.unwrap_or(false) && file.parent().is_some_and(|place| check(place).is_ok())
}

/// In a user namespace root may have another number: that of the owner of /.
fn is_own(metadata: &Metadata) -> io::Result<bool> {
    let trusted = [rustix::process::geteuid().as_raw(), 0, fs::metadata("/")?.uid()];
    Ok(trusted.contains(&metadata.uid()) && metadata.mode() & 0o022 == 0)
}
