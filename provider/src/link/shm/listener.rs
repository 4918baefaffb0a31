//! Sockets at which other processes find an address, and what these ask for.

use std::{
    io, mem,
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd, OwnedFd},
};

use roce_transport::addr::Gid;
use rustix::net::SocketFlags;

use super::{
    ring::{Reader, Writer},
    socket::{self, connect, is_same_user, receive_with, send_with, watch},
};

/// Number of processes that may have connected and not yet said what for.
pub(super) const MAX_PENDING: usize = 64;

/// Start of the message that asks for a ring; its last byte changes with everything about the ring.
/// The address of the sender follows.
pub(super) const HELLO_RING: [u8; 8] = *b"roce\0\0\0\x04";
pub(super) const HELLO_RING_LEN: usize = HELLO_RING.len() + 16;
/// Message that asks to share the address.
const HELLO_SHARE: [u8; 8] = *b"share\0\0\x04";

/// Request of a process that has connected.
pub(super) enum Hello {
    /// To send from this address, through this ring.
    Ring(IpAddr, Reader),
    /// To share the address, and to be woken by this descriptor.
    Share(OwnedFd),
}

/// A connection to the socket of an own address.
pub(super) struct Pending {
    /// The own address.
    pub(super) dst: IpAddr,
    pub(super) socket: OwnedFd,
}

/// The sockets of this device's addresses, and connections that have asked for nothing yet.
#[derive(Default)]
pub(super) struct Listeners {
    listeners: Vec<Listener>,
    pending: Vec<Pending>,
}

struct Listener {
    address: IpAddr,
    socket: OwnedFd,
}

impl Listeners {
    /// Can be found at this address from now on.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has the name.
    pub(super) fn listen(
        &mut self,
        epoll: &OwnedFd,
        address: IpAddr,
        interface: u32,
    ) -> io::Result<()> {
        let socket = socket::listen(address, interface)?;
        watch(epoll, &socket)?;
        self.listeners.push(Listener { address, socket });
        Ok(())
    }

    /// Takes over the sockets of others.
    pub(super) fn absorb(&mut self, others: Self) {
        self.listeners.extend(others.listeners);
        self.pending.extend(others.pending);
    }

    /// Is not found at this address any more.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.listeners.retain(|listener| listener.address != address);
    }

    /// Accepts connections of the same user, and returns those that have said what for. Others are
    /// closed when they say something that makes no sense.
    pub(super) fn accept_pending(&mut self, epoll: &OwnedFd) -> Vec<(Pending, Hello)> {
        for Listener { address, socket } in &self.listeners {
            while let Ok(socket) =
                rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            {
                if self.pending.len() < MAX_PENDING
                    && is_same_user(&socket)
                    && watch(epoll, &socket).is_ok()
                {
                    self.pending.push(Pending { dst: *address, socket });
                }
            }
        }
        let mut accepted = Vec::new();
        for pending in mem::take(&mut self.pending) {
            match pending.hello() {
                Ok(None) => self.pending.push(pending),
                Ok(Some(hello)) => accepted.push((pending, hello)),
                Err(_) => {}
            }
        }
        accepted
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.listeners.len(), self.pending.len())
    }
}

impl Pending {
    /// Its request, once it has come.
    fn hello(&self) -> io::Result<Option<Hello>> {
        let mut message = [0; HELLO_RING_LEN];
        let (length, mut descriptors) = match receive_with(&self.socket, &mut message) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        match (message.split_first_chunk(), descriptors.pop()) {
            (Some((&HELLO_RING, address)), Some(memory)) if length == HELLO_RING_LEN => {
                let address: [u8; 16] =
                    address.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(Some(Hello::Ring(Ipv6Addr::from(address).to_canonical(), Reader::new(memory)?)))
            }
            (Some((&HELLO_SHARE, _)), Some(wakeup)) if length == HELLO_SHARE.len() => {
                Ok(Some(Hello::Share(wakeup)))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Asks the process that has `dst` to read a ring from `src`.
pub(super) fn request_channel(
    src: IpAddr,
    dst: IpAddr,
    interface: u32,
) -> io::Result<(OwnedFd, Writer)> {
    let socket = connect(dst, interface)?;
    let (writer, memory) = Writer::new()?;
    let mut hello = [0; HELLO_RING_LEN];
    let (first, address) = hello.split_at_mut(HELLO_RING.len());
    first.copy_from_slice(&HELLO_RING);
    address.copy_from_slice(&Gid::from(src).0);
    send_with(&socket, &hello, &[memory.as_fd()])?;
    Ok((socket, writer))
}

/// Asks the owner of an address to share it.
pub(super) fn request_grant(
    epoll: &OwnedFd,
    wakeup: &OwnedFd,
    address: IpAddr,
    interface: u32,
) -> io::Result<OwnedFd> {
    let socket = connect(address, interface)?;
    watch(epoll, &socket)?;
    send_with(&socket, &HELLO_SHARE, &[wakeup.as_fd()])?;
    Ok(socket)
}
