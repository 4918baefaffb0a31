//! Connections to processes that are not known to be trusted.
//!
//! A message can carry descriptors, and who made one chooses how long its last close takes
//! (`SO_LINGER`). The kernel closes it in the thread that receives the message without taking the
//! descriptor, or that closes the socket where the message waits. So a stranger's socket is neither
//! received from nor closed by a thread that serves a device or a reaper. A thread closes them,
//! which runs while there are any, and may wait: then a bounded number of sockets waits for it, and
//! no more connections are made or accepted.
//!
//! A child process that is made meanwhile has copies of them. If the parent closes one before the
//! child executes another program, that waits in the child.

use std::{io, mem, os::fd::OwnedFd, sync::MutexGuard, thread};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::credentials::{self, check_trust};
use crate::{signals, sync::Mutex};

/// Number of connections that are not checked, or wait to be closed.
pub(super) const MAX_STRANGERS: usize = 64;

/// Connections that are not checked yet, and what is closed of them.
static STRANGERS: Closer = Closer::new();
/// Listening sockets, where strangers may be that nobody has accepted. They wait for no others.
static NAMES: Closer = Closer::new();

/// A thread that closes sockets.
struct Closer(Mutex<Closing>);

struct Closing {
    /// Number of sockets that are not closed, or not checked, yet.
    count: usize,
    /// Those that wait.
    sockets: Vec<OwnedFd>,
    /// The thread runs.
    is_served: bool,
}

impl Closer {
    const fn new() -> Self {
        Self(Mutex::new(Closing { count: 0, sockets: Vec::new(), is_served: false }))
    }

    /// Has the thread close a counted socket. If there can be none, it stays open until there is.
    fn close(&'static self, socket: OwnedFd) {
        let mut closing = self.0.lock();
        closing.sockets.push(socket);
        if !closing.is_served {
            let thread = thread::Builder::new().name("roce close".into());
            closing.is_served = signals::blocked(|| thread.spawn(|| self.serve())).is_ok();
        }
    }

    /// The thread.
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

/// True if no more connections are made or accepted for now.
pub(super) fn is_full() -> bool {
    STRANGERS.0.lock().count >= MAX_STRANGERS
}

/// Has a listening socket closed where strangers may be.
pub(super) fn close_name(socket: OwnedFd) {
    NAMES.0.lock().count += 1;
    NAMES.close(socket);
}

/// True if such a socket is not closed yet.
pub(super) fn is_closing_names() -> bool {
    NAMES.0.lock().count > 0
}

/// What is closed, as a thread has it that forks the process.
pub(crate) struct StrangersHeld([MutexGuard<'static, Closing>; 2]);

impl StrangersHeld {
    pub(crate) fn begin() -> Self {
        Self([&STRANGERS, &NAMES].map(|closer| closer.0.lock()))
    }

    /// This is the child. The threads are the parent's, and close them there.
    pub(crate) fn forget(&mut self) {
        for closing in &mut self.0 {
            mem::forget(mem::take(&mut closing.sockets)); // the child's close could be the last
            (closing.count, closing.is_served) = (0, false);
        }
    }
}

/// A connection to a process that may be a stranger.
pub(super) struct Unchecked(Option<OwnedFd>);

impl Unchecked {
    /// One to whoever has this name.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`], too, while as many strangers wait to be closed as may.
    pub(super) fn connect(name: &[u8]) -> io::Result<Self> {
        Self::make(io::ErrorKind::PermissionDenied, || {
            let socket = unix_socket()?;
            rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
            Ok(socket)
        })
    }

    /// The next that has come to a listening socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] while as many strangers wait to be closed as may.
    pub(super) fn accept(name: &OwnedFd) -> io::Result<Self> {
        Self::make(io::ErrorKind::ResourceBusy, || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            Ok(rustix::net::accept_with(name, flags)?)
        })
    }

    /// Makes one, if there is room for it among those that wait to be closed.
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

    /// The connection, if the other process is [to be trusted](check_trust).
    ///
    /// # Errors
    /// Those of [`check_trust`].
    pub(super) fn check(self) -> io::Result<OwnedFd> {
        self.check_or(|_| false)
    }

    /// The same. Of a process of the same user that has ended, `is_known` says whether it is
    /// trusted. It may look at what has come, and must take nothing.
    ///
    /// # Errors
    /// Those of [`check_trust`].
    pub(super) fn check_or(self, is_known: impl FnOnce(&OwnedFd) -> bool) -> io::Result<OwnedFd> {
        let socket = self.0.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        match check_trust(socket) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_known(socket) => {}
            result => result?,
        }
        self.into_trusted()
    }

    /// The connection, if a process of this user is there, which is trusted with what comes by it.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it is another's.
    pub(super) fn of_user(self, user: u32) -> io::Result<OwnedFd> {
        let socket = self.0.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if credentials::user(socket)? != user {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.into_trusted()
    }

    /// The connection, which is counted no more.
    fn into_trusted(mut self) -> io::Result<OwnedFd> {
        let trusted = self.0.take().ok_or(io::ErrorKind::NotConnected)?;
        STRANGERS.0.lock().count -= 1;
        Ok(trusted)
    }

    /// The connection, whoever is there.
    #[cfg(test)]
    pub(super) fn into_inner(mut self) -> OwnedFd {
        STRANGERS.0.lock().count -= 1;
        self.0.take().unwrap()
    }

    /// Process and user at the other end, as far as they can be seen.
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

/// A socket that lets nobody wait.
pub(super) fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}
