//! The library that takes the place of libibverbs and librdmacm, and the names by which programs
//! find it.

use std::{
    env,
    fs::{self, DirBuilder, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

use roce::environment;

const NAME: &str = "libroce_abi.so";
/// Programs are linked with the first two, or load any of the four by name. All lead to one file,
/// which the dynamic linker then loads once.
const LINKS: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// The library: the one that is named, or `ROCE_LIBRARY`, or one beside this program or in
/// ../lib/roce.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    let variable = environment::value("ROCE_LIBRARY").map(PathBuf::from);
    if let Some(path) = named.map(Path::to_owned).or(variable) {
        return check(&path)
            .map_err(|problem| format!("the library {} {problem}; see --library", path.display()));
    }
    let own = env::current_exe()
        .map_err(|error| format!("cannot tell where this program is: {error}; use --library"))?;
    let place = own.parent().unwrap_or(&own);
    let candidates = [place.join(NAME), place.join("../lib/roce").join(NAME)];
    for candidate in &candidates {
        match check(candidate) {
            Err(problem) if fs::symlink_metadata(candidate).is_ok() => {
                return Err(format!(
                    "the library {} {problem}; see --library",
                    candidate.display()
                ));
            }
            Err(_) => {}
            found => return found,
        }
    }
    let place = place.display();
    Err(format!(
        "there is no {NAME} in {place} or {place}/../lib/roce; `cargo build --release -p roce-abi` \
         makes it, --library names it"
    ))
}

/// The path without links, if it leads to a shared object.
fn check(path: &Path) -> Result<PathBuf, String> {
    let mut magic = [0; 4];
    let mut read = || -> io::Result<PathBuf> {
        let path = fs::canonicalize(path)?;
        File::open(&path)?.read_exact(&mut magic)?;
        Ok(path)
    };
    match read() {
        Ok(path) if magic == *b"\x7FELF" => Ok(path),
        Ok(_) => Err("is no shared object".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err("is no shared object".to_owned())
        }
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// A directory in which the library has the names of those that it stands for. It is this user's
/// own, stays from one run to the next, and belongs to this library only: a program that runs may
/// still load from it.
pub(super) fn directory(library: &Path) -> Result<PathBuf, String> {
    let make = || {
        let mut hasher = DefaultHasher::new();
        library.hash(&mut hasher);
        let directory = roce::runtime_directory()?.join(format!("lib-{:016x}", hasher.finish()));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let metadata = fs::symlink_metadata(&directory)?;
        if !metadata.is_dir()
            || metadata.mode() & 0o022 != 0
            || metadata.uid() != rustix::process::geteuid().as_raw()
        {
            return Err(io::Error::other(format!(
                "{} is no directory that only this user can change",
                directory.display()
            )));
        }
        LINKS.iter().try_for_each(|name| link(&directory.join(name), library))?;
        Ok(directory)
    };
    let directory =
        make().map_err(|error| format!("cannot give the library its names: {error}"))?;
    if directory.as_os_str().as_bytes().contains(&b':') {
        return Err(format!(
            "{} has a colon in its name, which no list of libraries can have",
            directory.display()
        ));
    }
    Ok(directory)
}

/// Makes `path` a link to the library, unless it is one. It is replaced as a whole, so that others
/// that start meanwhile find the one or the other.
fn link(path: &Path, library: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|target| target == library) {
        return Ok(());
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    symlink(library, &new)?;
    fs::rename(&new, path)
}
