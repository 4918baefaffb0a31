//! FIFOs at which clients request to join, named by network namespace and address. Only root can
//! make the directory, and is trusted to receive for all users.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read},
    net::IpAddr,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, mkfifoat};

use super::message::JoinRequest;
use crate::{
    link::{ensure, message, name::scoped},
    signals::without_sigpipe,
};

pub(crate) const DIRECTORY: &str = "/run/roce-share";

/// Requests read per round.
const BATCH: usize = 8;
/// Shown for users that a user namespace does not map.
const UNMAPPED: u32 = 65_534;
const OTHERS_WRITE: u32 = 0o022;

fn name(address: IpAddr, interface: u32) -> io::Result<String> {
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(format!("{namespace}-{}", scoped(address, interface)))
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

pub(super) struct AdmissionFifo {
    path: PathBuf,
    pub(super) file: File,
    /// Last bytes read, perhaps the start of a request.
    rest: Vec<u8>,
}

impl AdmissionFifo {
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
        let file = options.inspect_err(|_| drop(fs::remove_file(&path)))?;
        // everybody may request to join
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR | Mode::WGRP | Mode::WOTH)?;
        Ok(Self { path, file, rest: Vec::new() })
    }

    pub(super) fn requests(&mut self) -> Vec<JoinRequest> {
        let mut bytes = [0; BATCH * JoinRequest::LEN];
        let length = self.file.read(&mut bytes).unwrap_or(0);
        self.rest.extend_from_slice(&bytes[..length]);
        let requests = JoinRequest::all_in(&self.rest);
        self.rest.drain(..self.rest.len().saturating_sub(JoinRequest::LEN - 1));
        requests
    }
}

impl Drop for AdmissionFifo {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// Requests to join at an address, and returns the service's user. Errors:
/// [`io::ErrorKind::NotFound`] without a FIFO or a service; [`io::ErrorKind::WouldBlock`] while the
/// FIFO is full.
pub(super) fn request(
    directory: &Path,
    address: IpAddr,
    interface: u32,
    request: &JoinRequest,
) -> io::Result<u32> {
    check(directory)?;
    let path = directory.join(name(address, interface)?);
    let fifo = OpenOptions::new().write(true).custom_flags(FLAGS).open(path);
    let fifo = fifo.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::ErrorKind::NotFound.into(),
        _ => error,
    })?;
    let metadata = fifo.metadata()?;
    // unmapped users look alike: any of them could pose as the service
    ensure(metadata.file_type().is_fifo() && metadata.uid() != UNMAPPED, io::ErrorKind::NotFound)?;
    // the service may have ended since
    let bytes = message::encode::<{ JoinRequest::LEN }>(request);
    let written = without_sigpipe(|| rustix::io::write(&fifo, &bytes))?;
    ensure(written == JoinRequest::LEN, io::ErrorKind::WouldBlock)?;
    Ok(metadata.uid())
}

/// Checks that only root or this user can have made the directory.
fn check(directory: &Path) -> io::Result<()> {
    let above = fs::metadata(directory.parent().unwrap_or(directory))?;
    let own = rustix::process::geteuid().as_raw();
    let is_safe = above.mode() & OTHERS_WRITE == 0 && [0, own].contains(&above.uid());
    ensure(is_safe, io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const REQUEST: JoinRequest = JoinRequest::new([1; 16], [2; 16], 0);

    fn kind(result: io::Result<u32>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn a_request_reaches_the_service() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        let join = || request(&directory, ADDRESS, 0, &REQUEST);
        assert_eq!(kind(join()), Some(io::ErrorKind::NotFound));
        prepare(&directory).unwrap();
        prepare(&directory).unwrap();
        assert_eq!(kind(join()), Some(io::ErrorKind::NotFound));
        let mut fifo = AdmissionFifo::new(&directory, ADDRESS, 0).unwrap();
        assert_eq!(fifo.requests(), []);
        join().unwrap();
        assert_eq!((fifo.requests(), fifo.requests()), (vec![REQUEST], vec![]));
        // a killed service leaves its FIFO, and the next makes another
        std::mem::forget(fifo);
        let mut next = AdmissionFifo::new(&directory, ADDRESS, 0).unwrap();
        join().unwrap();
        assert_eq!(next.requests(), [REQUEST]);
        drop(next);
        assert_eq!(kind(join()), Some(io::ErrorKind::NotFound));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn a_full_fifo_keeps_nobody_waiting() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        prepare(&directory).unwrap();
        let mut fifo = AdmissionFifo::new(&directory, ADDRESS, 0).unwrap();
        let mut requests = 0;
        let error = loop {
            match request(&directory, ADDRESS, 0, &REQUEST) {
                Ok(_) => requests += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        while requests > 0 {
            requests -= fifo.requests().len();
        }
        request(&directory, ADDRESS, 0, &REQUEST).unwrap();
    }

    #[test]
    fn a_request_is_found_behind_nonsense() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        prepare(&directory).unwrap();
        let mut fifo = AdmissionFifo::new(&directory, ADDRESS, 0).unwrap();
        let mut writer = OpenOptions::new().write(true).open(&fifo.path).unwrap();
        writer.write_all(&[7; 3 * JoinRequest::LEN + 5]).unwrap();
        request(&directory, ADDRESS, 0, &REQUEST).unwrap();
        assert_eq!(fifo.requests(), [REQUEST]);
    }

    #[test]
    fn a_directory_that_others_can_make_has_no_fifos() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("share");
        prepare(&directory).unwrap();
        let _fifo = AdmissionFifo::new(&directory, ADDRESS, 0).unwrap();
        for (mode, found) in [(0o755, true), (0o777, false), (0o1777, false), (0o775, false)] {
            fs::set_permissions(above.path(), Permissions::from_mode(mode)).unwrap();
            let result = request(&directory, ADDRESS, 0, &REQUEST);
            assert_eq!(result.is_ok(), found, "{mode:o}");
        }
    }
}
