//! The library that takes the place of libibverbs and librdmacm, and the names by which programs
//! find it.

use std::{
    collections::BTreeSet,
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

/// A directory in which the library has the names of those that it stands for, and `also` these:
/// beside the library, or in the user's cache where that cannot be written or others could. It belongs to this library
/// only, and stays from one run to the next: a program that runs may still load from it.
///
/// The dynamic linker executes what it finds there, at any time. So nobody but this user and root
/// may be able to put something there, now or when the directory has been cleaned away: /tmp will
/// not do.
pub(super) fn directory(library: &Path, also: &BTreeSet<String>) -> Result<PathBuf, String> {
    let beside = beside(library);
    if !has_colon(&beside) && named(&beside, library, also).is_ok() {
        return Ok(beside);
    }
    let directory = cached(library, also)
        .map_err(|problem| format!("cannot give the library its names: {problem}"))?;
    if has_colon(&directory) {
        return Err(format!(
            "{} has a colon in its name, which no list of libraries can have",
            directory.display()
        ));
    }
    Ok(directory)
}

fn beside(library: &Path) -> PathBuf {
    let mut name = library.file_name().unwrap_or_default().to_owned();
    name.push(".links");
    library.with_file_name(name)
}

fn has_colon(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&b':')
}

/// The directory in the user's cache.
fn cached(library: &Path, also: &BTreeSet<String>) -> Result<PathBuf, String> {
    let absolute = |variable| {
        let value = environment::value(variable).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let cache =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or("there is no HOME; set XDG_CACHE_HOME to a directory of your own")?;
    let problem = |error| match error {
        Unfit::Open(place) => format!(
            "others than you can change {}; set XDG_CACHE_HOME to a directory of your own that is \
             not in /tmp, or use `chmod go-w` if that one is yours",
            place.display()
        ),
        Unfit::System(error) => {
            format!("{}: {error}; set XDG_CACHE_HOME to a directory of your own", cache.display())
        }
    };
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let place = existing(&cache);
    // nothing is made where it will not do
    check_path(&fs::canonicalize(&place).map_err(|error| problem(error.into()))?)
        .map_err(problem)?;
    let place = cache.join("roce");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&place)
        .map_err(|error| problem(error.into()))?;
    let place = fs::canonicalize(place).map_err(|error| problem(error.into()))?;
    let directory = place.join(format!("lib-{:016x}", hasher.finish()));
    named(&directory, library, also).map_err(problem)?;
    Ok(directory)
}

/// The part of a path that there is.
fn existing(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    there.unwrap_or(Path::new("/")).to_owned()
}

/// Why a directory does not serve.
enum Unfit {
    /// Others can change this one, on the way to it.
    Open(PathBuf),
    System(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Makes the directory, in one that there is, and the links in it, where they are missing.
fn named(directory: &Path, library: &Path, also: &BTreeSet<String>) -> Result<(), Unfit> {
    check_path(directory.parent().unwrap_or(directory))?;
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if fs::symlink_metadata(directory).is_err() => return Err(error.into()),
        _ => {}
    }
    check_path(directory)?;
    let mut names = LINKS.into_iter().chain(also.iter().map(String::as_str));
    Ok(names.try_for_each(|name| link(&directory.join(name), library))?)
}

/// Looks whether this user and root alone can change what a path without links leads to: nobody
/// else owns or can write any directory on it. Whoever owns / is root, by whatever number a user
/// namespace shows.
fn check_path(path: &Path) -> Result<(), Unfit> {
    let trusted = [rustix::process::geteuid().as_raw(), 0, fs::metadata("/")?.uid()];
    for part in path.ancestors() {
        let metadata = fs::symlink_metadata(part)?;
        if !metadata.is_dir() || !trusted.contains(&metadata.uid()) || metadata.mode() & 0o022 != 0
        {
            return Err(Unfit::Open(part.to_owned()));
        }
    }
    Ok(())
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
