//! The counters of open devices, published for other processes of the same user.
//!
//! Every open device has a small file (JSON) in a directory that only its user can enter:
//! `$XDG_RUNTIME_DIR/roce`, or `/tmp/roce-UID` where that variable names no directory of the user's
//! own, or `/tmp/roce-UID.NUMBER` where somebody else was first to make that. It is replaced as a
//! whole, at most once a second and only when a counter has changed, and goes when the device is
//! closed. Its owner holds a lock on it (`flock`), which the kernel releases when the process ends,
//! however it ends. A file that no process holds is stale, and the next process that finds it
//! removes it. So neither process numbers that are used again nor those of other containers confuse
//! it.
//!
//! A device that cannot publish, because there is no such directory or the disk is full, works all
//! the same.

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

/// Version of a file's contents.
const VERSION: u32 = 3;
const SUFFIX: &str = "counters";
/// A file that will take the place of the one before when it is whole.
const UNFINISHED: &str = "new";

/// The counters of a device that is open now, in this process or in another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Published {
    /// The device's name.
    pub device: String,
    /// The process that has it open, as that process sees itself.
    pub pid: u32,
    /// The program that it runs.
    pub program: String,
    /// The network namespace that it is in, by its number (`/proc/PID/ns/net`); 0: unknown. The
    /// same address in another one is another.
    pub network: u64,
    /// The device's GIDs, `::` for unused entries.
    pub gids: Vec<String>,
    /// The address that a server has leased to the device.
    pub lease: Option<LeasedAddress>,
    /// Time of opening, since the Unix epoch.
    pub opened: Duration,
    /// Time at which the values were read, since the Unix epoch.
    pub updated: Duration,
    /// Every counter, those of the transport first, then those of the link.
    pub counters: Vec<PublishedCounter>,
}

/// A counter of a device that is open now.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PublishedCounter {
    /// Its name.
    pub name: String,
    /// Explanation of what it counts; empty if the device is of another version of this software
    /// and this one does not know the counter.
    pub explanation: &'static str,
    /// Value.
    pub value: u64,
}

/// The counters of every device that this user has open now (`roce devinfo --counters`), at most a
/// second or so old. Files that dead processes have left are removed.
///
/// # Errors
/// When the directory is there but cannot be read, or belongs to someone else.
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
    /// True if it is in the network namespace of this process, as far as both are known.
    #[must_use]
    pub fn shares_network(&self) -> bool {
        self.network == network()
    }
}

/// This process's network namespace.
fn network() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino())
}

fn read_all(directory: &Path) -> io::Result<Vec<Published>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.extension().and_then(OsStr::to_str) {
            Some(SUFFIX) => {}
            Some(UNFINISHED) => {
                let age = fs::metadata(&path)
                    .and_then(|metadata| metadata.modified())
                    .map(|at| at.elapsed());
                if age.is_ok_and(|age| age.is_ok_and(|age| age > Duration::from_secs(60))) {
                    let _ = fs::remove_file(&path); // its owner died while it wrote it
                }
                continue;
            }
            _ => continue,
        }
        // one that cannot be read has gone meanwhile, or is no file of ours
        found.extend(read(&path).ok().flatten().as_deref().and_then(parse));
    }
    Ok(found)
}

/// The contents of a file, if its owner lives.
fn read(path: &Path) -> io::Result<Option<String>> {
    loop {
        let mut file = File::open(path)?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            // No process holds it. But its owner may just have replaced it by a new one, which it
            // does hold.
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

/// Contents of a file.
#[derive(Serialize, Deserialize)]
struct Record {
    /// Version of what follows.
    version: u32,
    device: String,
    pid: u32,
    program: String,
    network: u64,
    gids: Vec<String>,
    #[serde(default)]
    lease: Option<LeasedAddress>,
    /// Milliseconds since the Unix epoch.
    opened: u64,
    updated: u64,
    /// Name and value, in order.
    counters: Vec<(String, u64)>,
}

impl Record {
    fn of(published: &Published) -> Self {
        let Published { device, pid, program, network, gids, lease, opened, updated, counters } =
            published.clone();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let counters = counters.into_iter().map(|counter| (counter.name, counter.value)).collect();
        let (opened, updated) = (millis(opened), millis(updated));
        let version = VERSION;
        Self { version, device, pid, program, network, gids, lease, opened, updated, counters }
    }

    /// The device that the record describes, if the record is of this version.
    fn read(self) -> Option<Published> {
        let Self { version, device, pid, program, network, gids, lease, opened, updated, counters } =
            self;
        let known: Vec<Counter> =
            Counters::default().iter().chain(LinkCounters::default().named()).collect();
        let counter = |(name, value): (String, u64)| {
            let known = known.iter().find(|counter| counter.name == name);
            let explanation = known.map_or("", |counter| counter.explanation);
            PublishedCounter { name, explanation, value }
        };
        let counters = counters.into_iter().map(counter).collect();
        let (opened, updated) = (Duration::from_millis(opened), Duration::from_millis(updated));
        let published =
            Published { device, pid, program, network, gids, lease, opened, updated, counters };
        (version == VERSION).then_some(published)
    }
}

fn parse(text: &str) -> Option<Published> {
    serde_json::from_str::<Record>(text).ok()?.read()
}

/// The file of an open device.
pub(crate) struct Publisher {
    path: PathBuf,
    /// The file that is there now, locked.
    held: Option<File>,
    published: Published,
}

impl Publisher {
    /// Publishes a device with every counter at zero. `None`: no file can be made.
    pub(crate) fn new(device: &str, gids: Vec<String>) -> Option<Self> {
        let directory = runtime_directory().ok()?;
        let _ = read_all(&directory); // removes what dead processes have left
        Self::within(&directory, device, gids)
    }

    fn within(directory: &Path, device: &str, gids: Vec<String>) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let started = since_epoch();
        // a process of another container may have the same number
        let path = directory.join(format!("{pid}-{number}-{}.{SUFFIX}", started.as_nanos()));
        let program = env::current_exe().unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let device = device.to_owned();
        let network = network();
        let published = Published {
            device,
            pid,
            program,
            network,
            gids,
            opened: started,
            ..Published::default()
        };
        let mut publisher = Self { path, held: None, published };
        publisher.write(&Counters::default(), &LinkCounters::default()).ok()?;
        Some(publisher)
    }

    fn write(&mut self, counters: &Counters, link: &LinkCounters) -> io::Result<()> {
        let all = counters.iter().chain(link.named());
        let published = |Counter { name, explanation, value }| PublishedCounter {
            name: name.into(),
            explanation,
            value,
        };
        self.published.counters = all.map(published).collect();
        self.published.lease = link.lease.clone();
        self.published.updated = since_epoch();
        let record = serde_json::to_vec(&Record::of(&self.published))?;
        let new = self.path.with_extension(UNFINISHED);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let result = flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(&record))
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
        if self.published.pid != std::process::id() {
            return; // a copy in a child: the file is still its parent's
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// This user's directory for what outlives no login and others must not touch:
/// `$XDG_RUNTIME_DIR/roce`, or `/tmp/roce-UID`, or, where somebody else has made that, one that is
/// called `/tmp/roce-UID.NUMBER`. It is made if it is missing, with rights for its user only.
///
/// Nothing may be executed from it: when /tmp has been cleaned, others can make it again.
///
/// # Errors
/// When it cannot be made, or the one in `$XDG_RUNTIME_DIR` belongs to someone else, or others can
/// enter it.
pub fn runtime_directory() -> io::Result<PathBuf> {
    match own_runtime() {
        Some(runtime) => make(runtime.join("roce")),
        None => make_below(Path::new(SHARED)),
    }
}

/// Where everybody can make a directory.
const SHARED: &str = "/tmp";

/// `$XDG_RUNTIME_DIR`, if it is this user's: one that becomes another user may still have the
/// variable of the first.
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

/// The user's directory in a place where everybody may have taken its first name, or all that can
/// be guessed.
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

/// All directories of this user's in such a place.
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

/// Everybody can write to /tmp: only a directory of this user's own, which no one else can enter,
/// will do.
fn check(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    let own = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & 0o077 == 0;
    let message =
        || format!("{} is not a directory that this user alone can enter", directory.display());
    if own { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, message())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Of two names the first is taken by somebody who got there before; a link, a file or a
    /// directory that others can enter are as good as another user's, which only root can make.
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
        // what is published in either is read
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
