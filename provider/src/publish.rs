//! Counters of open devices, published to the user's other processes.
//!
//! Each device has a JSON file in the [runtime directory](runtime_directory), replaced at most once
//! a second. The owner holds a `flock`, which the kernel releases at process end. Readers remove
//! unlocked files. Without a directory or disk space, the device works unpublished.

use std::{
    env,
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use roce_transport::event::{Counter, Counters};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    counters::{LeasedAddress, LinkCounters},
    engine::CounterSink,
    variables,
};

const VERSION: u32 = 4;
const SUFFIX: &str = "counters";
/// Suffix of an incomplete file.
const UNFINISHED: &str = "new";

/// Counters of an open device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Published {
    /// Device name.
    pub device: String,
    /// Process ID in the process's namespace.
    pub pid: u32,
    /// Program.
    pub program: String,
    /// Network namespace (inode of `/proc/PID/ns/net`); 0: unknown.
    pub network: u64,
    /// GIDs; `::` for unused entries.
    pub gids: Vec<String>,
    /// Leased address.
    pub lease: Option<LeasedAddress>,
    /// Opening time since the Unix epoch.
    pub opened: Duration,
    /// Time of the values since the Unix epoch.
    pub updated: Duration,
    /// Counters of the transport, then of the link.
    pub counters: Vec<PublishedCounter>,
}

/// Published counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PublishedCounter {
    /// Name.
    pub name: String,
    /// Explanation; empty for an unknown counter.
    #[serde(skip)]
    pub explanation: &'static str,
    /// Value.
    pub value: u64,
}

/// Counters of the user's open devices, about 1 s old (`roce devinfo --counters`).
///
/// Removes files of dead processes.
///
/// # Errors
/// If the directory cannot be read or belongs to another user.
pub fn published_counters() -> io::Result<Vec<Published>> {
    let mut found = match own_runtime() {
        Some(runtime) => {
            let directory = runtime.join("roce");
            match check(&directory) {
                Ok(()) => read_all(&directory)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error),
            }
        }
        None => {
            own_below(Path::new(SHARED))?.iter().flat_map(|path| read_all(path)).flatten().collect()
        }
    };
    found.sort_by(|a, b| (a.opened, a.pid, &a.device).cmp(&(b.opened, b.pid, &b.device)));
    Ok(found)
}

impl Published {
    /// True in the same network namespace, or if both are unknown.
    #[must_use]
    pub fn shares_network(&self) -> bool {
        self.network == network()
    }
}

fn network() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino())
}

fn read_all(directory: &Path) -> io::Result<Vec<Published>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.extension().and_then(OsStr::to_str) {
            // unreadable: gone or foreign
            Some(SUFFIX) => found.extend(read(&path).ok().flatten().as_deref().and_then(parse)),
            // the owner died while writing
            Some(UNFINISHED) if age(&path) > Some(Duration::from_secs(60)) => {
                let _ = fs::remove_file(&path);
            }
            _ => {}
        }
    }
    Ok(found)
}

fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// A file's contents, if the owner lives.
fn read(path: &Path) -> io::Result<Option<String>> {
    loop {
        let mut file = File::open(path)?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            // the owner may just have replaced the file
            if fs::metadata(path)?.ino() != file.metadata()?.ino() {
                continue;
            }
            fs::remove_file(path)?;
            return Ok(None);
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        return Ok(Some(text));
    }
}

/// `None` for another version.
fn parse(text: &str) -> Option<Published> {
    let (version, mut published): (u32, Published) = serde_json::from_str(text).ok()?;
    let (transport, link) = (Counters::default(), LinkCounters::default());
    let known: Vec<Counter> = transport.iter().chain(link.named()).collect();
    for counter in &mut published.counters {
        let known = known.iter().find(|known| known.name == counter.name);
        counter.explanation = known.map_or("", |known| known.explanation);
    }
    (version == VERSION).then_some(published)
}

pub(crate) struct Publisher {
    path: PathBuf,
    held: Option<File>,
    published: Published,
}

impl Publisher {
    /// `None` if no file is possible.
    pub(crate) fn new(device: &str, gids: Vec<String>) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let directory = runtime_directory().ok()?;
        let _ = read_all(&directory); // removes dead processes' files
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let opened = since_epoch();
        // process IDs repeat across containers
        let path = directory.join(format!("{pid}-{number}-{}.{SUFFIX}", opened.as_nanos()));
        let program = env::current_exe().unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (device, network) = (device.to_owned(), network());
        let published =
            Published { device, pid, program, network, gids, opened, ..Published::default() };
        let mut publisher = Self { path, held: None, published };
        publisher.write(&Counters::default(), &LinkCounters::default()).ok()?;
        Some(publisher)
    }

    fn write(&mut self, counters: &Counters, link: &LinkCounters) -> io::Result<()> {
        let published = |Counter { name, explanation, value, .. }: Counter| PublishedCounter {
            name: name.into(),
            explanation,
            value,
        };
        self.published.counters = counters.iter().chain(link.named()).map(published).collect();
        self.published.lease = link.lease.clone();
        self.published.updated = since_epoch();
        let published = serde_json::to_vec(&(VERSION, &self.published))?;
        let new = self.path.with_extension(UNFINISHED);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let result = flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(&published))
            .and_then(|()| fs::rename(&new, &self.path));
        if result.is_err() {
            let _ = fs::remove_file(&new);
        } else {
            self.held = Some(file);
        }
        result
    }
}

impl CounterSink for Publisher {
    fn publish(&mut self, counters: &Counters, link: &LinkCounters, gids: &[String]) {
        self.published.gids = gids.to_vec();
        let _ = self.write(counters, link);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // a forked child has the parent's file
        if self.published.pid == std::process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The user's private directory, created if missing: `$XDG_RUNTIME_DIR/roce`, `/tmp/roce-UID`, or
/// `/tmp/roce-UID.NUMBER` if others took that name.
///
/// Never execute files from there: after a cleanup of /tmp, others can create the directory.
///
/// # Errors
/// If creation fails, or `$XDG_RUNTIME_DIR/roce` belongs or is open to another user.
pub fn runtime_directory() -> io::Result<PathBuf> {
    match own_runtime() {
        Some(runtime) => make(runtime.join("roce")),
        None => make_below(Path::new(SHARED)),
    }
}

const SHARED: &str = "/tmp";

/// `$XDG_RUNTIME_DIR`, unless another user's, as after setuid.
fn own_runtime() -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let own = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user);
    variables::value("XDG_RUNTIME_DIR").map(PathBuf::from).filter(own)
}

fn name_below() -> String {
    format!("roce-{}", rustix::process::geteuid().as_raw())
}

fn make(directory: PathBuf) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(&directory)?;
    Ok(directory)
}

/// Uses a suffixed name if the first name is taken.
fn make_below(shared: &Path) -> io::Result<PathBuf> {
    let name = name_below();
    let error = match make(shared.join(&name)) {
        Ok(directory) => return Ok(directory),
        Err(error) => error,
    };
    if let Some(other) = own_below(shared)?.into_iter().next() {
        return Ok(other);
    }
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
    let other = shared.join(format!("{name}.{:016x}", u64::from_ne_bytes(number)));
    make(other).map_err(|_| error)
}

fn own_below(shared: &Path) -> io::Result<Vec<PathBuf>> {
    let name = name_below();
    let mut found = Vec::new();
    for entry in fs::read_dir(shared)? {
        let entry = entry?;
        let rest = entry.file_name();
        let rest = rest.to_str().and_then(|entry| entry.strip_prefix(&name));
        let is_named = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if is_named && check(&entry.path()).is_ok() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Accepts only a private directory of this user: /tmp is world-writable.
fn check(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    let own = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & 0o077 == 0;
    let message =
        || format!("{} is not a directory of this user alone (mode 0700)", directory.display());
    if own { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, message())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Stand-ins for another user's directory, which only root can create.
    #[test]
    fn who_takes_the_first_name_locks_nobody_out() {
        let shared = env::temp_dir().join(format!("roce-publish-{}", std::process::id()));
        fs::create_dir(&shared).unwrap();
        let first = shared.join(name_below());
        assert_eq!(make_below(&shared).unwrap(), first);
        assert_eq!(own_below(&shared).unwrap(), std::slice::from_ref(&first));
        fs::remove_dir(&first).unwrap();

        fs::create_dir(shared.join("elsewhere")).unwrap();
        symlink(shared.join("elsewhere"), &first).unwrap();
        let second = make_below(&shared).unwrap();
        assert!(second != first && second.parent() == Some(&shared));
        assert_eq!(fs::metadata(&second).unwrap().mode() & 0o777, 0o700);
        assert_eq!(make_below(&shared).unwrap(), second, "one is enough");
        fs::remove_file(&first).unwrap();
        fs::create_dir(&first).unwrap();
        fs::set_permissions(&first, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(make_below(&shared).unwrap(), second);
        fs::set_permissions(&first, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(own_below(&shared).unwrap(), [first, second]);
        if rustix::process::geteuid().is_root() {
            let third = shared.join(name_below() + ".3");
            fs::create_dir(&third).unwrap();
            fs::set_permissions(&third, PermissionsExt::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&third, Some(65_534), None).unwrap();
            assert_eq!(own_below(&shared).unwrap().len(), 2, "another user's");
        }
        fs::remove_dir_all(&shared).unwrap();
    }
}
