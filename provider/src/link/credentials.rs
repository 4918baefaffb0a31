//! Trust in a process at the other end of a Unix socket that could read this one's memory anyway.
//!
//! The user ID is not enough: a container's root without capabilities has the host root's ID, and
//! all IDs unmapped by a user namespace look the same.

#![allow(unsafe_code, reason = "what a socket knows of its peer process has no safe interface")]

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
    process,
};

use rustix::process::{DumpableBehavior, Pid, PidfdFlags, dumpable_behavior, geteuid, pidfd_open};

use super::{ensure, socket_option::option};
use crate::readiness::is_readable;

/// Checks that both processes could trace each other: same user, user namespace, PID namespace and
/// capabilities.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if they could not, or this is unknown;
/// [`io::ErrorKind::ConnectionRefused`] if the other process has ended.
pub(crate) fn check_trust(socket: &OwnedFd) -> io::Result<()> {
    // the cheap check first: every user of the host can connect
    let peer = peer(socket)?;
    ensure(peer.uid == geteuid().as_raw(), io::ErrorKind::PermissionDenied)?;
    let process = peer_process(socket, peer.pid).map_err(|_| io::ErrorKind::ConnectionRefused)?;
    let number = number(&process)?;
    let is_trusted = number == process::id() || is_traceable(&number.to_string());
    // if the process has ended, another may have been inspected
    ensure(!is_readable(process.as_fd()), io::ErrorKind::ConnectionRefused)?;
    ensure(is_trusted, io::ErrorKind::PermissionDenied)
}

/// In this user namespace.
pub(super) fn user(socket: &OwnedFd) -> io::Result<u32> {
    Ok(peer(socket)?.uid)
}

pub(super) fn process(socket: &OwnedFd) -> io::Result<u32> {
    number(&peer_process(socket, peer(socket)?.pid)?)
}

fn peer(socket: &OwnedFd) -> io::Result<libc::ucred> {
    // SAFETY: `SO_PEERCRED` gives a `ucred`, for which zeros are valid.
    unsafe { option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED) }
}

/// Pidfd of the process that connected or listens at the other end.
fn peer_process(socket: &OwnedFd, number: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: `SO_PEERPIDFD` gives a descriptor's number.
    match unsafe { option::<RawFd>(socket, libc::SOL_SOCKET, libc::SO_PEERPIDFD) } {
        // SAFETY: The kernel has just opened the descriptor for this call alone.
        Ok(descriptor) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        // Before Linux 6.5. The number may be another process's if the maker has ended and all
        // numbers were used up since.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            let number = Pid::from_raw(number).ok_or(io::ErrorKind::PermissionDenied)?;
            Ok(pidfd_open(number, PidfdFlags::empty())?)
        }
        Err(error) => Err(error),
    }
}

/// PID in the namespace of `/proc`, which may differ from this process's.
fn number(process: &OwnedFd) -> io::Result<u32> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let number = about.lines().find_map(|line| line.strip_prefix("Pid:"));
    match number.and_then(|number| number.trim().parse::<i32>().ok()) {
        Some(-1) => Err(io::ErrorKind::ConnectionRefused.into()),
        Some(number @ 1..) => Ok(number.cast_unsigned()),
        // 0: the PID namespace is invisible from this one
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Reading the other's namespaces makes the kernel check one direction, users and groups included.
fn is_traceable(other: &str) -> bool {
    dumpable_behavior().is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable)
        && namespaces(other).is_some_and(|theirs| namespaces("self") == Some(theirs))
        && capabilities(other).is_some_and(|theirs| capabilities("self") == Some(theirs))
}

fn namespaces(process: &str) -> Option<[PathBuf; 2]> {
    let namespace = |kind| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    Some([namespace("user")?, namespace("pid")?])
}

fn capabilities(process: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find(|line| line.starts_with("CapPrm:")).map(str::to_owned)
}
