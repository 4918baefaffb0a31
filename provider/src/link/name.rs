//! Named sockets, by which other processes find this one.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, SocketAddrUnix},
};

use super::stranger::{self, Unchecked, unix_socket};

/// A listening socket, whose last close [may block](stranger): unaccepted strangers may have sent
/// descriptors.
pub(super) struct Name {
    /// Set until dropped.
    socket: Option<OwnedFd>,
    is_shared: AtomicBool,
    /// Process that opened the socket. A forked child has a copy.
    process: u32,
}

impl Name {
    /// Errors: [`io::ErrorKind::AddrInUse`] if taken.
    pub(super) fn listen(name: &[u8]) -> io::Result<Self> {
        let name = SocketAddrUnix::new_abstract_name(name)?;
        let this = Self::of(unix_socket()?, false);
        rustix::net::bind(this.socket(), &name)?;
        this.accept_here()?;
        Ok(this)
    }

    pub(super) fn join(socket: OwnedFd) -> Self {
        Self::of(socket, true)
    }

    fn of(socket: OwnedFd, is_shared: bool) -> Self {
        Self { socket: Some(socket), is_shared: is_shared.into(), process: process::id() }
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("it is there until this is dropped")
    }

    /// Makes later connectors see this process as the listener.
    pub(super) fn accept_here(&self) -> io::Result<()> {
        Ok(rustix::net::listen(self.socket(), 128)?)
    }

    /// Errors: [`io::ErrorKind::WouldBlock`] if no process waits, [`io::ErrorKind::InvalidInput`]
    /// once ended.
    pub(super) fn accept(&self) -> io::Result<Unchecked> {
        Unchecked::accept(self.socket())
    }

    /// True in the process that opened the socket.
    pub(super) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    pub(super) fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Refuses further connections.
    pub(super) fn end(&self) {
        let _ = rustix::net::shutdown(self.socket(), Shutdown::Both);
    }

    pub(super) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(self.socket(), PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().contains(PollFlags::RDHUP)
    }
}

/// Address in a name. A link-local address needs its interface.
pub(super) fn scoped(address: IpAddr, interface: u32) -> String {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{v6}%{interface}"),
        _ => address.to_string(),
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
            return; // the parent's
        }
        if !self.is_shared.load(Ordering::Relaxed) {
            self.end();
        }
        // after the end, accepting drains everything that a close could block on
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
