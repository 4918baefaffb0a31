//! Sockets at which other processes find an address, and what these ask for.

use std::{
    collections::VecDeque,
    io, mem,
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::{addr::Gid, share::IdPartition, time::Instant};

use super::{
    channel::Request,
    socket::{self, connect, connect_directly, poll_with, send_with, unwatch, watch},
};
use crate::link::{
    name::Name,
    rings::{Reader, Writer},
    stranger,
};

/// Number of processes that may have connected and not yet said what for. One more takes the place
/// of the one that has been silent for longest: who asks for something does so at once.
pub(super) const MAX_PENDING: usize = 64;
/// Time that a process has to say what it has connected for.
pub(super) const PENDING_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of connections to an address's socket that are looked at in one go. Every user of the host
/// can make them.
pub(super) const ACCEPT_BATCH: usize = 8;
/// Time after which it is tried again to accept them, while too many strangers wait to be closed.
pub(super) const REST: Duration = Duration::from_millis(10);

/// Start of the message that asks for a ring; its last byte changes with everything about the ring.
/// The address of the sender follows, or [`FORWARDED`].
pub(super) const HELLO_RING: [u8; 8] = *b"roce\0\0\0\x06";
/// In the place of a sender's address: what comes are datagrams of others, each behind a header that
/// says whose.
pub(super) const FORWARDED: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
pub(super) const HELLO_RING_LEN: usize = HELLO_RING.len() + 16;
/// Message that asks to share the address.
const HELLO_SHARE: [u8; 8] = *b"share\0\0\x07";

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
    /// True: it has come to this process, whichever receives for the address.
    pub(super) is_direct: bool,
    /// Time at which it is closed if it has still not asked for anything.
    until: Instant,
}

/// The sockets of this device's addresses, and connections that have asked for nothing yet.
#[derive(Default)]
pub(super) struct Listeners {
    listeners: Vec<Listener>,
    /// In the order in which they have come.
    pending: VecDeque<Pending>,
    /// Set while nobody can be accepted.
    rests_until: Option<Instant>,
}

struct Listener {
    address: IpAddr,
    /// True: the name is not the address's, but this process's there.
    is_direct: bool,
    name: Arc<Name>,
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
        self.adopt(epoll, address, Arc::new(socket::listen(address, interface)?))
    }

    /// Accepts at a socket that has this address's name already, and needs no other there.
    pub(super) fn adopt(
        &mut self,
        epoll: &OwnedFd,
        address: IpAddr,
        name: Arc<Name>,
    ) -> io::Result<()> {
        self.leave(epoll, |other| other.address == address && other.is_direct);
        self.add(epoll, Listener { address, is_direct: false, name })
    }

    /// Can be found by the processes that send to this one at an address that several have.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has the name.
    pub(super) fn listen_directly(
        &mut self,
        epoll: &OwnedFd,
        address: IpAddr,
        interface: u32,
        partition: IdPartition,
    ) -> io::Result<()> {
        if self.listeners.iter().any(|listener| listener.address == address && listener.is_direct) {
            return Ok(());
        }
        let name = Arc::new(socket::listen_directly(address, interface, partition)?);
        self.add(epoll, Listener { address, is_direct: true, name })
    }

    fn add(&mut self, epoll: &OwnedFd, listener: Listener) -> io::Result<()> {
        watch(epoll, &listener.name)?;
        self.listeners.push(listener);
        Ok(())
    }

    /// Takes over the sockets of others.
    pub(super) fn absorb(&mut self, others: Self) {
        self.listeners.extend(others.listeners);
        self.pending.extend(others.pending);
    }

    /// The socket with this address's name.
    pub(super) fn name(&self, address: IpAddr) -> Option<&Arc<Name>> {
        self.listeners
            .iter()
            .find(|listener| listener.address == address && !listener.is_direct)
            .map(|found| &found.name)
    }

    /// Is not found at this address any more.
    pub(super) fn forget(&mut self, epoll: &OwnedFd, address: IpAddr) {
        self.leave(epoll, |listener| listener.address == address);
    }

    /// Leaves to another process to accept who comes to the address.
    pub(super) fn resign(&mut self, epoll: &OwnedFd, address: IpAddr) {
        self.leave(epoll, |listener| listener.address == address && !listener.is_direct);
    }

    fn leave(&mut self, epoll: &OwnedFd, is: impl Fn(&Listener) -> bool) {
        let gone = self.listeners.extract_if(.., |listener| is(listener));
        gone.for_each(|listener| unwatch(epoll, &listener.name));
    }

    /// Time at which a connection has been silent for too long, or at which others can perhaps be accepted.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self.pending.front().map(|pending| pending.until);
        silent.into_iter().chain(self.rests_until).min()
    }

    /// Accepts some connections, and returns those that have said what for. Others are closed: what
    /// says something that makes no sense, or nothing for too long, and who is not trusted.
    pub(super) fn accept_pending(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
    ) -> Vec<(Pending, Hello)> {
        self.rest_if_full(now, epoll);
        for Listener { address, is_direct, name } in &self.listeners {
            for _ in 0..ACCEPT_BATCH {
                let Ok(unchecked) = name.accept() else { break };
                let Ok(socket) = unchecked.check() else { continue };
                if watch(epoll, &socket).is_err() {
                    continue;
                }
                if self.pending.len() >= MAX_PENDING {
                    self.pending.pop_front();
                }
                let until = now.plus(PENDING_TIMEOUT);
                let (dst, is_direct) = (*address, *is_direct);
                self.pending.push_back(Pending { dst, socket, is_direct, until });
            }
        }
        let mut accepted = Vec::new();
        for pending in mem::take(&mut self.pending) {
            match pending.hello() {
                Ok(None) if now < pending.until => self.pending.push_back(pending),
                Ok(Some(hello)) => accepted.push((pending, hello)),
                Ok(None) | Err(_) => {}
            }
        }
        accepted
    }

    /// Hears nothing of who comes, for some time, while nobody can be accepted.
    fn rest_if_full(&mut self, now: Instant, epoll: &OwnedFd) {
        let is_full = stranger::is_full();
        for Listener { name, .. } in &self.listeners {
            if is_full {
                unwatch(epoll, name);
            } else if self.rests_until.is_some() {
                let _ = watch(epoll, name);
            }
        }
        self.rests_until = is_full.then(|| now.plus(REST));
    }

    /// Cannot be found by those that send to this process.
    #[cfg(test)]
    pub(super) fn forget_direct(&mut self) {
        self.listeners.retain(|listener| !listener.is_direct);
    }

    /// What a process has done that is stopped then.
    #[cfg(test)]
    pub(super) fn accept_only(&self) -> Vec<OwnedFd> {
        let accept = |listener: &Listener| listener.name.accept().ok()?.check().ok();
        self.listeners.iter().filter_map(accept).collect()
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
        let Some((length, mut descriptors)) = poll_with(&self.socket, &mut message)? else {
            return Ok(None);
        };
        match (message.split_first_chunk(), descriptors.pop()) {
            (Some((&HELLO_RING, address)), Some(memory)) if length == HELLO_RING_LEN => {
                let address: [u8; 16] =
                    address.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(Some(Hello::Ring(Ipv6Addr::from(address).to_canonical(), Reader::new(memory)?)))
            }
            (Some((&HELLO_SHARE, _)), Some(wakeup)) if length == HELLO_SHARE.len() => {
                Ok(Some(Hello::Share(socket::wakeup(wakeup)?)))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Asks the process that has `dst`, or of several the one with this partition, to read a ring from
/// `src`, and to answer until then.
pub(super) fn request_channel(
    epoll: &OwnedFd,
    [src, dst]: [IpAddr; 2],
    partition: Option<IdPartition>,
    interface: u32,
    until: Instant,
) -> io::Result<Request> {
    let socket = match partition {
        Some(partition) => connect_directly(dst, interface, partition)?,
        None => connect(dst, interface)?,
    };
    let (writer, memory) = Writer::new()?;
    let mut hello = [0; HELLO_RING_LEN];
    let (first, address) = hello.split_at_mut(HELLO_RING.len());
    first.copy_from_slice(&HELLO_RING);
    address.copy_from_slice(&Gid::from(src).0);
    send_with(&socket, &hello, &[memory.as_fd()])?;
    watch(epoll, &socket)?;
    Ok(Request { socket, writer, interface, until })
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
