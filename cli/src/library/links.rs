//! Directories in which the library has the names of those that it stands for.

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

use super::{
    cache,
    trust::{self, Unfit},
};

pub(super) const NAME: &str = "libroce_abi.so";
/// The library that has TCP go over rsockets, beside that one.
pub(super) const SOCKETS: &str = "librspreload.so";
/// Programs are linked with the first two, or load any of the four by name. All lead to one file,
/// which the dynamic linker then loads once.
const LINKS: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// What pkg-config says to who links with the library: nothing but where it is. The headers are
/// those of rdma-core, whose newest version it has the symbols of.
const PKG_CONFIG: [(&str, &str); 2] = [
    ("libibverbs.pc", include_str!("libibverbs.pc")),
    ("librdmacm.pc", include_str!("librdmacm.pc")),
];

/// A directory in which the library has these names, and `also` those: beside the library, or in
/// the user's cache where that cannot be written or others could. It belongs to this library only,
/// and stays from one run to the next: a program that runs may still load from it.
pub(crate) fn directory(library: &Path, also: &BTreeSet<String>) -> Result<PathBuf, String> {
    let beside = beside(library);
    if !has_colon(&beside) && named(&beside, library, also).is_ok() {
        return Ok(beside);
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let name = format!("lib-{:016x}", hasher.finish());
    let cached = cache::first(|place| {
        let directory = place.join(&name);
        named(&directory, library, also).map(|()| directory)
    });
    let directory =
        cached.map_err(|problem| format!("cannot give the library its names: {problem}"))?;
    if has_colon(&directory) {
        return Err(format!(
            "{} has a colon in its name, which no list of libraries can have",
            directory.display()
        ));
    }
    Ok(directory)
}

/// Writes the library into a directory of any kind, with its names beside it, and that for sockets.
pub(crate) fn copy(library: &[u8], sockets: Option<&[u8]>, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    sockets.map_or(Ok(()), |sockets| write(&directory.join(SOCKETS), sockets))?;
    write(&directory.join(NAME), library)?;
    LINKS.into_iter().try_for_each(|name| link(&directory.join(name), Path::new(NAME)))
}

/// Writes what pkg-config says of a directory with the names, where it is not there yet.
pub(crate) fn describe(directory: &Path) -> io::Result<()> {
    let directory = directory.join("pkgconfig");
    fs::create_dir_all(&directory)?;
    PKG_CONFIG.into_iter().try_for_each(|(name, text)| {
        let path = directory.join(name);
        let is_there = fs::read(&path).is_ok_and(|found| found == text.as_bytes());
        if is_there { Ok(()) } else { write(&path, text.as_bytes()) }
    })
}

/// Writes a file as a whole, so that others that look meanwhile find this one or the one before.
pub(super) fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let new = temporary(path);
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(&new)?;
    let written = file.write_all(contents).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn beside(library: &Path) -> PathBuf {
    let mut name = library.file_name().unwrap_or_default().to_owned();
    name.push(".links");
    library.with_file_name(name)
}

fn has_colon(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&b':')
}

/// Makes the directory, in one that there is, and the links in it, where they are missing.
fn named(directory: &Path, library: &Path, also: &BTreeSet<String>) -> Result<(), Unfit> {
    trust::check(directory.parent().unwrap_or(directory))?;
    trust::make(directory)?;
    let mut names = LINKS.into_iter().chain(also.iter().map(String::as_str));
    names
        .try_for_each(|name| link(&directory.join(name), library))
        .map_err(Unfit::system(directory))
}

/// Makes `path` a link to the library, unless it is one. It is replaced as a whole.
fn link(path: &Path, library: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|target| target == library) {
        return Ok(());
    }
    let new = temporary(path);
    let _ = fs::remove_file(&new);
    symlink(library, &new)?;
    fs::rename(&new, path)
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.new", std::process::id()))
}
