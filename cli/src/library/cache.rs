//! The user's directory for files that outlive a run.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use roce::environment;

use super::trust::{self, Unfit};

/// Tries the user's cache, then the login's runtime directory.
pub(super) fn first<T>(attempt: impl Fn(&Path) -> Result<T, Unfit>) -> Result<T, String> {
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let places = [cache.map(|cache| (cache, "roce")), runtime()];
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

/// `roce` there holds published files.
fn runtime() -> Option<(PathBuf, &'static str)> {
    absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir()).map(|path| (path, "roce-library"))
}

fn own(place: &Path, name: &str) -> Result<PathBuf, Unfit> {
    let there = place.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let there = there.unwrap_or(Path::new("/"));
    // before creating anything
    trust::check(&fs::canonicalize(there).map_err(Unfit::system(there))?)?;
    let own = place.join(name);
    DirBuilder::new().recursive(true).mode(0o700).create(&own).map_err(Unfit::system(place))?;
    fs::canonicalize(&own).map_err(Unfit::system(&own))
}
