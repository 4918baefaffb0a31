//! Trust in the process at the other end of a Unix socket. It is trusted if it could read this
//! one's memory in any case: then it learns nothing from what is shared with it.
//!
//! A user's number alone does not say so. Root in a container, without capabilities, has the number
//! of the host's root, and users whose numbers a user namespace does not map all have the same one.

#![allow(unsafe_code, reason = "what a socket knows of its peer process has no safe interface")]

use std::{
    fs, io, mem,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
    process,
};

use rustix::process::{DumpableBehavior, Pid, PidfdFlags, dumpable_behavior, geteuid, pidfd_open};

use crate::readiness::is_readable;

/// Checks that the process at the other end and this one could trace each other: the same user, the
/// same user namespace and PID namespace, the same capabilities.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if they could not, or if that cannot be seen;
/// [`io::ErrorKind::ConnectionRefused`] if the other has ended.
pub(crate) fn check_trust(socket: &OwnedFd) -> io::Result<()> {
    // first what costs little, since every user of the host can connect
    let peer = peer(socket)?;
    if peer.uid != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let process = peer_process(socket, peer.pid).map_err(|_| io::ErrorKind::ConnectionRefused)?;
    let number = number(&process)?;
    let is_trusted = number == process::id() || is_traceable(&number.to_string());
    if is_readable(process.as_fd()) {
        // it has ended, and what was looked at may be another's
        Err(io::ErrorKind::ConnectionRefused.into())
    } else if is_trusted {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The user of the process at the other end, as this process's user namespace numbers it.
pub(super) fn user(socket: &OwnedFd) -> io::Result<u32> {
    Ok(peer(socket)?.uid)
}

/// The number of the process at the other end.
pub(super) fn process(socket: &OwnedFd) -> io::Result<u32> {
    number(&peer_process(socket, peer(socket)?.pid)?)
}

/// Process and user at the other end, when it connected or began to listen.
fn peer(socket: &OwnedFd) -> io::Result<libc::ucred> {
    // SAFETY: `SO_PEERCRED` gives such a structure, and zeros are one, too.
    unsafe { option(socket, libc::SO_PEERCRED) }
}

/// A descriptor of the process that has connected, or that listens, at the other end.
fn peer_process(socket: &OwnedFd, number: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: `SO_PEERPIDFD` gives a descriptor, which is a number.
    match unsafe { option::<RawFd>(socket, libc::SO_PEERPIDFD) } {
        // SAFETY: The kernel has just opened it for this call, and nothing else has it.
        Ok(descriptor) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        // Before Linux 6.5. Another process may have the number by now, which takes a connection
        // that outlives its maker, and as many new processes as there are numbers.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            let number = Pid::from_raw(number).ok_or(io::ErrorKind::PermissionDenied)?;
            Ok(pidfd_open(number, PidfdFlags::empty())?)
        }
        Err(error) => Err(error),
    }
}

/// An option of a socket.
///
/// # Safety
/// `T` is what the kernel gives for the option, and may be all zero.
unsafe fn option<T: Copy>(socket: &OwnedFd, name: libc::c_int) -> io::Result<T> {
    // SAFETY: See above.
    let mut value: T = unsafe { mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: The kernel writes at most `length` bytes to the value, and then to the length how
    // many it were. Both live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// The process's number in the PID namespace that `/proc` shows, which may be another than that of
/// this process.
fn number(process: &OwnedFd) -> io::Result<u32> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let number = about.lines().find_map(|line| line.strip_prefix("Pid:"));
    match number.and_then(|number| number.trim().parse::<i32>().ok()) {
        Some(-1) => Err(io::ErrorKind::ConnectionRefused.into()),
        Some(number @ 1..) => Ok(number.cast_unsigned()),
        // 0: in a PID namespace that cannot be seen from this one
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// True if this process and the other could trace each other. The kernel itself checks that this
/// one could, users and groups included, when the other's namespaces are looked at.
fn is_traceable(other: &str) -> bool {
    dumpable_behavior().is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable)
        && namespaces(other).is_some_and(|theirs| namespaces("self") == Some(theirs))
        && capabilities(other).is_some_and(|theirs| capabilities("self") == Some(theirs))
}

/// A process's user namespace and PID namespace.
fn namespaces(process: &str) -> Option<[PathBuf; 2]> {
    let namespace = |kind| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    Some([namespace("user")?, namespace("pid")?])
}

/// The capabilities that a process may have.
fn capabilities(process: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find(|line| line.starts_with("CapPrm:")).map(str::to_owned)
}
