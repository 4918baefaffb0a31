//! Directories and files that only this user and root can change, even after a cleanup: the dynamic
//! linker executes their contents. /tmp will not do.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use roce::environment;

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

/// Tries the user's cache, then the login's runtime directory.
pub(super) fn first<T>(attempt: impl Fn(&Path) -> Result<T, Unfit>) -> Result<T, String> {
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let runtime = absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir());
    // `roce` in the latter holds published files
    let places =
        [cache.map(|cache| (cache, "roce")), runtime.map(|runtime| (runtime, "roce-library"))];
    let mut problem = None;
    for (place, name) in places.into_iter().flatten() {
        match own(&place, name).and_then(|directory| attempt(&directory)) {
            Ok(done) => return Ok(done),
            Err(unfit) => problem = problem.or(Some(unfit)),
        }
    }
    Err(problem.map_or_else(
        || "HOME is unset; set XDG_CACHE_HOME to a directory that you own".to_owned(),
        |unfit| unfit.advice(),
    ))
}

fn absolute(variable: &str) -> Option<PathBuf> {
    environment::value(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn own(place: &Path, name: &str) -> Result<PathBuf, Unfit> {
    let there = place.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let there = there.unwrap_or(Path::new("/"));
    // before creating anything
    check(&fs::canonicalize(there).map_err(Unfit::system(there))?)?;
    let own = place.join(name);
    DirBuilder::new().recursive(true).mode(0o700).create(&own).map_err(Unfit::system(place))?;
    fs::canonicalize(&own).map_err(Unfit::system(&own))
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
