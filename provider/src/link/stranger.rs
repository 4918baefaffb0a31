//! Connections to processes not known to be trusted.
//!
//! The last close of a queued descriptor blocks as long as its maker chooses (`SO_LINGER`), in the
//! thread that closes the socket or discards the message. Threads of a device or reaper therefore
//! neither receive from nor close a stranger's socket. A closing thread does. If closing blocks,
//! its bounded queue fills, and no connections are made or accepted.
//!
//! A child process made meanwhile has copies: its exec may block instead.

use std::{io, mem, os::fd::OwnedFd, sync::MutexGuard, thread};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::credentials::{self, check_trust};
use crate::{signals, sync::Mutex};

/// Most connections unchecked or waiting to be closed.
pub(super) const MAX_STRANGERS: usize = 64;

/// Unchecked connections, and sockets to close.
static STRANGERS: Closer = Closer::new();
/// Listening sockets, where unaccepted strangers may wait, have their own thread.
static NAMES: Closer = Closer::new();

struct Closer(Mutex<Closing>);

struct Closing {
    count: usize,
    sockets: Vec<OwnedFd>,
    is_served: bool,
}

impl Closer {
    const fn new() -> Self {
        Self(Mutex::new(Closing { count: 0, sockets: Vec::new(), is_served: false }))
    }

    /// Queues a counted socket, which stays open until a thread can start.
    fn close(&'static self, socket: OwnedFd) {
        let mut closing = self.0.lock();
        closing.sockets.push(socket);
        if !closing.is_served {
            let thread = thread::Builder::new().name("roce close".into());
            closing.is_served = signals::blocked(|| thread.spawn(|| self.serve())).is_ok();
        }
    }

    fn serve(&self) {
        while let Some(socket) = self.next() {
            drop(socket);
            self.0.lock().count -= 1;
        }
    }

    fn next(&self) -> Option<OwnedFd> {
        let mut closing = self.0.lock();
        let next = closing.sockets.pop();
        closing.is_served = next.is_some();
        next
    }
}

pub(super) fn is_full() -> bool {
    STRANGERS.0.lock().count >= MAX_STRANGERS
}

pub(super) fn close_name(socket: OwnedFd) {
    NAMES.0.lock().count += 1;
    NAMES.close(socket);
}

pub(super) fn is_closing_names() -> bool {
    NAMES.0.lock().count > 0
}

pub(crate) struct StrangersHeld([MutexGuard<'static, Closing>; 2]);

impl StrangersHeld {
    pub(crate) fn begin() -> Self {
        Self([&STRANGERS, &NAMES].map(|closer| closer.0.lock()))
    }

    /// Forgets the sockets in a child: the parent's threads close them.
    pub(crate) fn forget(&mut self) {
        for closing in &mut self.0 {
            mem::forget(mem::take(&mut closing.sockets)); // the child's close could be the last
            (closing.count, closing.is_served) = (0, false);
        }
    }
}

pub(super) struct Unchecked(Option<OwnedFd>);

impl Unchecked {
    /// Errors: [`io::ErrorKind::PermissionDenied`], also while the queue is full.
    pub(super) fn connect(name: &[u8]) -> io::Result<Self> {
        Self::make(io::ErrorKind::PermissionDenied, || {
            let socket = unix_socket()?;
            rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
            Ok(socket)
        })
    }

    /// Errors: [`io::ErrorKind::ResourceBusy`] while the queue is full.
    pub(super) fn accept(name: &OwnedFd) -> io::Result<Self> {
        Self::make(io::ErrorKind::ResourceBusy, || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            Ok(rustix::net::accept_with(name, flags)?)
        })
    }

    fn make(full: io::ErrorKind, make: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        {
            let mut closing = STRANGERS.0.lock();
            if closing.count >= MAX_STRANGERS {
                return Err(full.into());
            }
            closing.count += 1;
        }
        let made = make();
        if made.is_err() {
            STRANGERS.0.lock().count -= 1;
        }
        Ok(Self(Some(made?)))
    }

    /// The connection, if the other process is trusted. Errors: those of [`check_trust`].
    pub(super) fn check(self) -> io::Result<OwnedFd> {
        self.check_or(|_| false)
    }

    /// As [`check`](Self::check), but `is_known` decides about an ended process of this user.
    /// `is_known` may peek, but must take nothing.
    pub(super) fn check_or(self, is_known: impl FnOnce(&OwnedFd) -> bool) -> io::Result<OwnedFd> {
        self.trust(|socket| {
            check_trust(socket).or_else(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused if is_known(socket) => Ok(()),
                _ => Err(error),
            })
        })
    }

    /// The connection, if its process is of this user, whose messages are trusted. Errors:
    /// [`io::ErrorKind::PermissionDenied`] if the process is another user's.
    pub(super) fn of_user(self, user: u32) -> io::Result<OwnedFd> {
        self.trust(|socket| match credentials::user(socket)? == user {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        })
    }

    fn trust(mut self, check: impl FnOnce(&OwnedFd) -> io::Result<()>) -> io::Result<OwnedFd> {
        check(self.0.as_ref().ok_or(io::ErrorKind::NotConnected)?)?;
        let trusted = self.0.take().ok_or(io::ErrorKind::NotConnected)?;
        STRANGERS.0.lock().count -= 1;
        Ok(trusted)
    }

    #[cfg(test)]
    pub(super) fn into_inner(mut self) -> OwnedFd {
        STRANGERS.0.lock().count -= 1;
        self.0.take().unwrap()
    }

    pub(super) fn peer(&self) -> Option<(Option<u32>, u32)> {
        let socket = self.0.as_ref()?;
        Some((credentials::process(socket).ok(), credentials::user(socket).ok()?))
    }
}

impl Drop for Unchecked {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            STRANGERS.close(socket);
        }
    }
}

pub(super) fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}
