//! Sockets with names, at which other processes find this one.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, SocketAddrUnix},
};

use super::stranger::{self, Unchecked, unix_socket};

/// A listening socket. Strangers that nobody has accepted may have sent something, so that its last
/// close [may wait](stranger).
pub(super) struct Name {
    /// There until this is dropped.
    socket: Option<OwnedFd>,
    /// Other processes may have it, too.
    is_shared: AtomicBool,
    /// The process that has opened it. A forked child has a copy.
    process: u32,
}

impl Name {
    /// One of this name; [`io::ErrorKind::AddrInUse`] if there is one already.
    pub(super) fn listen(name: &[u8]) -> io::Result<Self> {
        let name = SocketAddrUnix::new_abstract_name(name)?;
        let this = Self::of(unix_socket()?, false);
        rustix::net::bind(this.socket(), &name)?;
        this.accept_here()?;
        Ok(this)
    }

    /// One that another process has, too.
    pub(super) fn join(socket: OwnedFd) -> Self {
        Self::of(socket, true)
    }

    fn of(socket: OwnedFd, is_shared: bool) -> Self {
        Self { socket: Some(socket), is_shared: is_shared.into(), process: process::id() }
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("it is there until this is dropped")
    }

    /// Has those who connect from now on see that it is this process that listens.
    pub(super) fn accept_here(&self) -> io::Result<()> {
        Ok(rustix::net::listen(self.socket(), 128)?)
    }

    /// The next process that has come.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or [`io::ErrorKind::InvalidInput`] once it has ended, if none
    /// has.
    pub(super) fn accept(&self) -> io::Result<Unchecked> {
        Unchecked::accept(self.socket())
    }

    /// True in the process that has opened it.
    pub(super) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// Other processes may have it from now on.
    pub(super) fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Nobody comes to it any more.
    pub(super) fn end(&self) {
        let _ = rustix::net::shutdown(self.socket(), Shutdown::Both);
    }

    /// True if nobody comes to it any more.
    pub(super) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(self.socket(), PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().contains(PollFlags::RDHUP)
    }
}

impl AsFd for Name {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        use io::ErrorKind::{InvalidInput, WouldBlock};
        if !self.is_own() {
            return; // the parent has it
        }
        if !self.is_shared.load(Ordering::Relaxed) {
            self.end();
        }
        // of one that has ended, nothing is left to be closed with it then
        let is_empty = self.has_ended()
            && loop {
                match self.accept() {
                    Ok(unchecked) => drop(unchecked.check()),
                    Err(error) => break matches!(error.kind(), WouldBlock | InvalidInput),
                }
            };
        if let Some(socket) = self.socket.take_if(|_| !is_empty) {
            stranger::close_name(socket);
        }
    }
}
