//! Embedded libraries, unpacked because dynamic linkers load files.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::{
    links::{self, NAME, SOCKETS},
    trust::{self, Unfit},
};

pub(super) const CARRIED: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/carried.rs"));

pub(super) const CARRIED_SOCKETS: Option<&[u8]> =
    include!(concat!(env!("OUT_DIR"), "/carried_sockets.rs"));

/// Unpacks both libraries once into the user's cache, by version and contents. `None`: the tool
/// carries no library.
pub(super) fn unpacked() -> Option<Result<PathBuf, String>> {
    let library = CARRIED?;
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    CARRIED_SOCKETS.hash(&mut hasher);
    let name = format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish());
    let unpacked = trust::first(|place| {
        let directory = place.join(&name);
        if let Some(carried) = CARRIED_SOCKETS {
            unpack(carried, &directory, SOCKETS)?;
        }
        unpack(library, &directory, NAME)
    });
    Some(unpacked.map_err(|problem| format!("cannot unpack the library: {problem}")))
}

fn unpack(library: &[u8], directory: &Path, name: &str) -> Result<PathBuf, Unfit> {
    trust::make(directory)?;
    executable(directory)?;
    let path = directory.join(name);
    // A truncated or changed file is rewritten.
    if !fs::read(&path).is_ok_and(|found| found == library) {
        links::write(&path, library).map_err(Unfit::system(&path))?;
    }
    Ok(path)
}

/// Fails where files may not be mapped executable.
fn executable(directory: &Path) -> Result<(), Unfit> {
    let mount = statvfs(directory).map_err(|error| Unfit::system(directory)(error.into()))?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(Unfit::NoExec(directory.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    /// A directory that nobody else can change.
    fn own() -> tempfile::TempDir {
        let root = rustix::process::geteuid().is_root();
        let place = if root { Path::new("/run") } else { Path::new(env!("CARGO_MANIFEST_DIR")) };
        tempfile::tempdir_in(place).unwrap()
    }

    #[test]
    fn it_is_written_once_and_again_when_it_is_damaged() {
        let scratch = own();
        let directory = fs::canonicalize(scratch.path()).unwrap().join("lib");
        let unpacked = || unpack(b"a library", &directory, NAME).ok().unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let path = unpacked();
        assert_eq!(
            (path.file_name().unwrap().to_str(), inode(&path)),
            (Some(NAME), inode(&unpacked()))
        );
        for damaged in ["a lib", "", "another"] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(fs::read(unpacked()).unwrap(), b"a library");
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn nothing_is_unpacked_where_others_can_write() {
        let scratch = own();
        let directory = fs::canonicalize(scratch.path()).unwrap().join("lib");
        unpack(b"a library", &directory, NAME).ok().unwrap();
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
        let refused = unpack(b"another", &directory, NAME).err().unwrap();
        assert!(matches!(refused, Unfit::WritableByOthers(place) if place == directory));
        assert_eq!(fs::read(directory.join(NAME)).unwrap(), b"a library");
    }

    #[test]
    fn a_place_that_is_mounted_noexec_will_not_do() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut looked_at = 0;
        for mount in mounts.lines().filter(|line| !line.contains('\\')) {
            let fields: Vec<_> = mount.split(' ').collect();
            // Another mount may cover it.
            let last = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some(fields[1]));
            if last != Some(mount) || !Path::new(fields[1]).is_dir() {
                continue;
            }
            match executable(Path::new(fields[1])) {
                Err(Unfit::System(..)) => continue, // invisible to this user
                found => {
                    let noexec = fields[3].split(',').any(|option| option == "noexec");
                    assert_eq!(matches!(found, Err(Unfit::NoExec(_))), noexec, "{mount}");
                }
            }
            looked_at += 1;
        }
        assert!(looked_at > 0);
        assert!(Unfit::NoExec("/a".into()).advice().starts_with("/a is mounted noexec"));
    }
}
