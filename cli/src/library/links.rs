//! Directories with the library under the names that it replaces.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use super::trust::{self, Unfit};

pub(super) const NAME: &str = "libroce_abi.so";
pub(super) const SOCKETS: &str = "librspreload.so";
/// Programs link with the first two, or load any. All are one file, loaded once.
const LINKS: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// pkg-config files name only the directory. Headers are rdma-core's, whose newest symbols exist
/// here.
const PKG_CONFIG: [(&str, &str); 2] = [
    ("libibverbs.pc", include_str!("libibverbs.pc")),
    ("librdmacm.pc", include_str!("librdmacm.pc")),
];

/// A directory with these names and `also`: beside the library, or in the user's cache if that is
/// not writable or not safe. The directory stays, as running programs may still load from it.
pub(crate) fn directory(library: &Path, also: &BTreeSet<String>) -> Result<PathBuf, String> {
    let beside = beside(library);
    if !has_colon(&beside) && named(&beside, library, also).is_ok() {
        return Ok(beside);
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let name = format!("lib-{:016x}", hasher.finish());
    let cached = trust::first(|place| {
        let directory = place.join(&name);
        named(&directory, library, also).map(|()| directory)
    });
    let directory =
        cached.map_err(|problem| format!("cannot link the library's names: {problem}"))?;
    if has_colon(&directory) {
        return Err(format!(
            "the path {} has a colon, which LD_LIBRARY_PATH cannot express; move it",
            directory.display()
        ));
    }
    Ok(directory)
}

/// Copies the library with its names, and the rsockets library.
pub(crate) fn copy(library: &[u8], sockets: Option<&[u8]>, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    sockets.map_or(Ok(()), |sockets| write(&directory.join(SOCKETS), sockets))?;
    write(&directory.join(NAME), library)?;
    LINKS.into_iter().try_for_each(|name| link(&directory.join(name), Path::new(NAME)))
}

pub(crate) fn describe(directory: &Path) -> io::Result<()> {
    let directory = directory.join("pkgconfig");
    fs::create_dir_all(&directory)?;
    PKG_CONFIG.into_iter().try_for_each(|(name, text)| {
        let path = directory.join(name);
        let is_there = fs::read(&path).is_ok_and(|found| found == text.as_bytes());
        if is_there { Ok(()) } else { write(&path, text.as_bytes()) }
    })
}

/// Replaces a file atomically.
pub(super) fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    replace(path, |new| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(new)?;
        file.write_all(contents)
    })
}

fn beside(library: &Path) -> PathBuf {
    let mut name = library.file_name().unwrap_or_default().to_owned();
    name.push(".links");
    library.with_file_name(name)
}

fn has_colon(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&b':')
}

/// The parent must exist.
fn named(directory: &Path, library: &Path, also: &BTreeSet<String>) -> Result<(), Unfit> {
    trust::check(directory.parent().unwrap_or(directory))?;
    trust::make(directory)?;
    let mut names = LINKS.into_iter().chain(also.iter().map(String::as_str));
    names
        .try_for_each(|name| link(&directory.join(name), library))
        .map_err(Unfit::system(directory))
}

fn link(path: &Path, library: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|target| target == library) {
        return Ok(());
    }
    replace(path, |new| symlink(library, new))
}

/// Renames what `make` has made beside `path`.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let replaced = make(&new).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}
