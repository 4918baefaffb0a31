//! Copies of libibverbs and librdmacm in Python wheels' directories `NAME.libs`, such as
//! `libibverbs-1de1263b.so.1.14.48.0`.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

const LIBRARIES: [&str; 2] = ["libibverbs", "librdmacm"];
/// More than any environment has.
const MOST: usize = 64;

/// No other name may lead to roce.
pub(super) fn check(name: &OsStr) -> Result<String, String> {
    let fits = |name: &&str| {
        let rest = LIBRARIES.iter().find_map(|library| name.strip_prefix(library));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
        rest.is_some_and(|rest| rest.contains(".so")) && name.bytes().all(is_plain)
    };
    name.to_str().filter(fits).map(str::to_owned).ok_or_else(|| {
        format!(
            "{} is not a file name of libibverbs or librdmacm, such as libibverbs-1de1263b.so.1",
            name.to_string_lossy()
        )
    })
}

pub(super) fn names(program: &Path) -> BTreeSet<String> {
    let packages = packages(program);
    let copies = packages
        .iter()
        .flat_map(|place| entries(place))
        .filter(|path| path.extension() == Some(OsStr::new("libs")))
        .flat_map(|libs| entries(&libs));
    copies.filter_map(|path| check(path.file_name()?).ok()).take(MOST).collect()
}

/// Of the active environment, the program, its interpreter, and `PYTHONPATH`.
fn packages(program: &Path) -> BTreeSet<PathBuf> {
    let mut prefixes = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        prefixes.extend(env::var_os(variable).map(PathBuf::from));
    }
    prefixes.extend(env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    for executable in [Some(program.to_owned()), interpreter(program)].into_iter().flatten() {
        let real = fs::canonicalize(&executable).ok();
        for path in [Some(executable), real].into_iter().flatten() {
            prefixes.extend(path.parent().and_then(Path::parent).map(Path::to_owned));
        }
    }
    prefixes.push("/usr/local".into());
    let mut found: BTreeSet<PathBuf> =
        env::var_os("PYTHONPATH").iter().flat_map(env::split_paths).collect();
    for libraries in prefixes.iter().flat_map(|prefix| entries(&prefix.join("lib"))) {
        if libraries.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python")) {
            found.extend(["site-packages", "dist-packages"].map(|name| libraries.join(name)));
        }
    }
    found
}

/// A script's interpreter; with `env`, the program that it finds.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(script).ok()?.take(256)).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8(line).ok()?;
    let mut words = line.strip_prefix("#!")?.split_ascii_whitespace();
    let first = Path::new(words.next()?);
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first.to_owned());
    }
    let name = words.find(|word| !word.starts_with('-'))?;
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|place| place.join(name)).find(|path| path.is_file())
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// Programs often load copies by a path, which only preloaded libraries precede.
pub(super) fn preloading(names: &BTreeSet<String>, rest: Option<OsString>) -> OsString {
    let mut list = rest.unwrap_or_default();
    for name in names {
        if !list.as_bytes().split(|byte| b": ".contains(byte)).any(|word| word == name.as_bytes()) {
            if !list.is_empty() {
                list.push(":");
            }
            list.push(name);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_of_the_two_libraries_have_such_names() {
        let is_name = |name: &str| check(OsStr::new(name)).is_ok();
        assert!(is_name("libibverbs-1de1263b.so.1.14.48.0") && is_name("librdmacm.so.1"));
        for other in [
            "libc.so.6",
            "libibverbs",
            "libibverbs.so.1/../libc.so",
            "libibverbs.so:libc.so.6",
            "libibverbs.so libc.so.6",
            "xlibibverbs.so",
            "",
        ] {
            assert!(!is_name(other), "{other}");
        }
    }

    #[test]
    fn a_list_grows_by_what_it_has_not() {
        let names = BTreeSet::from(["libibverbs-1.so".to_owned(), "librdmacm-2.so".to_owned()]);
        assert_eq!(preloading(&names, None), "libibverbs-1.so:librdmacm-2.so");
        let list = preloading(&names, Some("libx.so librdmacm-2.so".into()));
        assert_eq!(list, "libx.so librdmacm-2.so:libibverbs-1.so");
        assert_eq!(preloading(&names, Some(list.clone())), list);
    }
}
