//! Doors: FIFOs at which clients knock, named by network namespace and address. Only root can make
//! the directory, and is trusted to receive for all users.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read},
    net::IpAddr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, mkfifoat};

use super::message::Knock;
use crate::{link::message, signals::without_sigpipe};

pub(crate) const DIRECTORY: &str = "/run/roce-share";

/// Knocks read per round.
const BATCH: usize = 8;
/// Shown for users that a user namespace does not map.
const UNMAPPED: u32 = 65_534;
const OTHERS_WRITE: u32 = 0o022;

fn name(address: IpAddr, interface: u32) -> io::Result<String> {
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{namespace}-{v6}%{interface}"),
        _ => format!("{namespace}-{address}"),
    })
}

/// State file of the service, named by its first address.
pub(super) fn state_file(directory: &Path, address: IpAddr, interface: u32) -> io::Result<File> {
    let path = directory.join(name(address, interface)? + ".state");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(FLAGS).open(path)
}

pub(super) fn prepare(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        // despite the umask
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) struct Door {
    path: PathBuf,
    knocks: File,
    /// Last bytes read, perhaps the start of a knock.
    rest: Vec<u8>,
}

impl Door {
    /// This process must have the address's UDP socket.
    pub(super) fn new(directory: &Path, address: IpAddr, interface: u32) -> io::Result<Self> {
        let path = directory.join(name(address, interface)?);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR)?;
        // for writing, too: reads never find an end
        let options = OpenOptions::new().read(true).write(true).custom_flags(FLAGS).open(&path);
        let knocks = options.inspect_err(|_| drop(fs::remove_file(&path)))?;
        // everybody may knock
        rustix::fs::fchmod(&knocks, Mode::RUSR | Mode::WUSR | Mode::WGRP | Mode::WOTH)?;
        Ok(Self { path, knocks, rest: Vec::new() })
    }

    pub(super) fn knocks(&mut self) -> Vec<Knock> {
        let mut bytes = [0; BATCH * Knock::LEN];
        let length = self.knocks.read(&mut bytes).unwrap_or(0);
        self.rest.extend_from_slice(&bytes[..length]);
        let knocks = Knock::all_in(&self.rest);
        self.rest.drain(..self.rest.len().saturating_sub(Knock::LEN - 1));
        knocks
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.knocks.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// Knocks at an address's door, and returns the user behind the door. Errors:
/// [`io::ErrorKind::NotFound`] without a door or a service; [`io::ErrorKind::WouldBlock`] while
/// many others knock.
pub(super) fn knock(
    directory: &Path,
    address: IpAddr,
    interface: u32,
    knock: &Knock,
) -> io::Result<u32> {
    check(directory)?;
    let path = directory.join(name(address, interface)?);
    let door = OpenOptions::new().write(true).custom_flags(FLAGS).open(path);
    let door = door.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::ErrorKind::NotFound.into(),
        _ => error,
    })?;
    let metadata = door.metadata()?;
    // unmapped users look alike: any of them could pose as the service
    if !metadata.file_type().is_fifo() || metadata.uid() == UNMAPPED {
        return Err(io::ErrorKind::NotFound.into());
    }
    // the service may have ended since
    match without_sigpipe(|| rustix::io::write(&door, &message::encode::<{ Knock::LEN }>(knock)))? {
        Knock::LEN => Ok(metadata.uid()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Checks that only root or this user can have made the directory.
fn check(directory: &Path) -> io::Result<()> {
    let above = fs::metadata(directory.parent().unwrap_or(directory))?;
    let own = rustix::process::geteuid().as_raw();
    if above.mode() & OTHERS_WRITE == 0 && [0, own].contains(&above.uid()) {
        Ok(())
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const KNOCK: Knock = Knock::new([1; 16], [2; 16], 0);

    fn kind(result: io::Result<u32>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn a_knock_is_heard_behind_the_door() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        let say = || knock(&directory, ADDRESS, 0, &KNOCK);
        assert_eq!(kind(say()), Some(io::ErrorKind::NotFound));
        prepare(&directory).unwrap();
        prepare(&directory).unwrap();
        assert_eq!(kind(say()), Some(io::ErrorKind::NotFound));
        let mut door = Door::new(&directory, ADDRESS, 0).unwrap();
        assert_eq!(door.knocks(), []);
        say().unwrap();
        assert_eq!((door.knocks(), door.knocks()), (vec![KNOCK], vec![]));
        // a killed service leaves its door, and the next makes another
        std::mem::forget(door);
        let mut next = Door::new(&directory, ADDRESS, 0).unwrap();
        say().unwrap();
        assert_eq!(next.knocks(), [KNOCK]);
        drop(next);
        assert_eq!(kind(say()), Some(io::ErrorKind::NotFound));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn a_full_door_keeps_nobody_waiting() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        prepare(&directory).unwrap();
        let mut door = Door::new(&directory, ADDRESS, 0).unwrap();
        let mut knocks = 0;
        let error = loop {
            match knock(&directory, ADDRESS, 0, &KNOCK) {
                Ok(_) => knocks += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        while knocks > 0 {
            knocks -= door.knocks().len();
        }
        knock(&directory, ADDRESS, 0, &KNOCK).unwrap();
    }

    #[test]
    fn a_knock_is_heard_behind_nonsense() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        prepare(&directory).unwrap();
        let mut door = Door::new(&directory, ADDRESS, 0).unwrap();
        let mut writer = OpenOptions::new().write(true).open(&door.path).unwrap();
        writer.write_all(&[7; 3 * Knock::LEN + 5]).unwrap();
        knock(&directory, ADDRESS, 0, &KNOCK).unwrap();
        assert_eq!(door.knocks(), [KNOCK]);
    }

    #[test]
    fn a_directory_that_others_can_make_has_no_doors() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        prepare(&directory).unwrap();
        let _door = Door::new(&directory, ADDRESS, 0).unwrap();
        for (mode, found) in [(0o755, true), (0o777, false), (0o1777, false), (0o775, false)] {
            fs::set_permissions(above.path(), Permissions::from_mode(mode)).unwrap();
            let result = knock(&directory, ADDRESS, 0, &KNOCK);
            assert_eq!(result.is_ok(), found, "{mode:o}");
        }
    }
}
