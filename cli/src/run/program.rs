use std::{
    env,
    ffi::OsStr,
    fs::{self, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access, getxattr},
    process::{getegid, geteuid},
};

use super::refusal::{NOT_EXECUTABLE, NOT_FOUND, Refusal};
use crate::library::Machine;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

pub(super) fn find(name: &OsStr) -> Result<PathBuf, Refusal> {
    let refuse = |status, line| Err(Refusal { status, line });
    let shown = name.to_string_lossy();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![name.into()]
    } else {
        let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        // An empty part is the current directory.
        env::split_paths(&path).map(|directory| Path::new(".").join(directory).join(name)).collect()
    };
    let mut unusable = None;
    for path in candidates.iter().filter(|_| !name.is_empty()) {
        let Ok(metadata) = fs::metadata(path) else { continue };
        if metadata.is_file() && access(path, Access::EXEC_OK).is_ok() {
            if let Some(machine) = Machine::foreign(path) {
                return refuse(
                    NOT_EXECUTABLE,
                    format!("{} is for {machine}; install a roce for that", path.display()),
                );
            }
            return match ignores_library_path(path, &metadata) {
                None => Ok(path.clone()),
                Some(why) => refuse(
                    NOT_EXECUTABLE,
                    format!(
                        "{} {why}, so the system ignores LD_LIBRARY_PATH and it does not load \
                         roce; run a copy without that",
                        path.display()
                    ),
                ),
            };
        }
        unusable.get_or_insert((path, metadata));
    }
    match unusable {
        Some((path, metadata)) => {
            let why = if metadata.is_dir() { "a directory" } else { "no program; see `chmod +x`" };
            refuse(NOT_EXECUTABLE, format!("cannot execute {}: it is {why}", path.display()))
        }
        None if candidates.len() == 1 && candidates[0] == Path::new(name) => {
            refuse(NOT_FOUND, format!("there is no program {shown}; check its path"))
        }
        None => refuse(
            NOT_FOUND,
            format!("no directory of PATH has a program {shown}; check its name, or give its path"),
        ),
    }
}

/// Reason why the dynamic linker ignores `LD_LIBRARY_PATH`.
fn ignores_library_path(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    let mode = metadata.mode();
    if mode & SETUID != 0 && metadata.uid() != geteuid().as_raw() {
        return Some("is setuid");
    }
    if mode & SETGID != 0 && mode & 0o010 != 0 && metadata.gid() != getegid().as_raw() {
        return Some("is setgid");
    }
    let capable = getxattr(path, "security.capability", &mut [0; 64]).is_ok();
    (capable && !geteuid().is_root()).then_some("has file capabilities")
}

pub(super) fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "its interpreter is missing: see its first line, or `file`".to_owned()
        }
        _ => error.to_string(),
    }
}
