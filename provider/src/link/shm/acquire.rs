//! Taking an address, alone or together with other processes.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use socket2::Socket;

use super::{
    Sharing, ShmLink,
    channel::{IncomingChannel, Origin},
    listener::request_grant,
    members::MakeSocket,
    owner::{Grant, HANDOVER, SharedAddress, Sockets},
    reaper,
    socket::{connect, connect_unchecked},
};
use crate::{
    bind::{BindError, is_stopped},
    clock,
    link::{credentials, rings::Reader},
    readiness::wait,
};

/// Time that the owner of an address has to grant it: enough for another process to take over from
/// one that is stopped.
const GRANT_TIMEOUT: Duration = Duration::from_millis(600);
/// Number of times that it is waited for a grant. An owner that is stopped just when it was asked
/// has taken the request with it.
const GRANTS: usize = 2;
/// Time for an address to pass from one process to another, which may all have to wait for the
/// processor.
const PASSING: Duration = Duration::from_secs(3);
/// Number of attempts to have an address that nobody shares, and that is taken: its owner is perhaps
/// just ending.
const ENDING_TRIES: usize = 50;

impl ShmLink {
    /// Takes an address: finds it free and makes its UDP socket, or shares it with the process that
    /// has it, whose socket it is given. `exclusive`: fails instead of sharing.
    ///
    /// # Errors
    /// Those of making the socket; [`BindError::Taken`], [`BindError::OtherUser`],
    /// [`BindError::Stopped`].
    pub(in crate::link) fn acquire(
        &mut self,
        address: IpAddr,
        interface: u32,
        exclusive: bool,
        make_socket: &MakeSocket,
    ) -> Result<Socket, BindError> {
        let bind = || make_socket(false).map_err(|source| BindError::of_socket(address, source));
        let mut tries = if exclusive || !self.shares() { 1 } else { ENDING_TRIES };
        let mut grants = GRANTS;
        let end = clock::now().plus(PASSING);
        loop {
            // a process that has the name has the address, or is about to
            match self.listeners.listen(&self.epoll, address, interface) {
                Ok(()) => match bind() {
                    Ok(socket) => {
                        self.own(address, interface, &socket, make_socket)
                            .map_err(|source| BindError::System { address, source })?;
                        return Ok(socket);
                    }
                    Err(error) => {
                        self.forget(address);
                        tries -= 1;
                        if tries == 0 || !matches!(error, BindError::Taken(_)) {
                            return Err(error);
                        }
                    }
                },
                // there are no such names here
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return bind(),
                Err(_) if exclusive => match connect(address, interface) {
                    Ok(_) => return Err(BindError::Taken(address)),
                    // it has just ended, and its UDP socket perhaps not yet
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Err(BindError::Taken(address));
                    }
                    // another user's process has the name, and perhaps not the address
                    Err(_) => return bind(),
                },
                Err(_) if !self.shares() => return bind(),
                Err(_) => match self.join(address, interface, make_socket) {
                    Ok(socket) => return Ok(socket),
                    Err(error) => {
                        let may_change = match error.kind() {
                            io::ErrorKind::TimedOut => {
                                grants = grants.saturating_sub(1);
                                grants > 0 || stopped(address, interface).is_none()
                            }
                            // it has just ended, or many ask it at once
                            io::ErrorKind::ConnectionRefused
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::BrokenPipe
                            | io::ErrorKind::WouldBlock => true,
                            _ => false,
                        };
                        if !may_change || clock::now() >= end {
                            // another process has the name, and perhaps not the address
                            self.forget(address);
                            let silent = error.kind() == io::ErrorKind::TimedOut;
                            return bind().map_err(|error| {
                                let stopped =
                                    if silent { stopped(address, interface) } else { None };
                                match stopped {
                                    Some(process) => BindError::Stopped { address, process },
                                    None => Self::other_user(address, interface).unwrap_or(error),
                                }
                            });
                        }
                    }
                },
            }
            thread::sleep(HANDOVER);
        }
    }

    fn shares(&self) -> bool {
        self.sharing != Sharing::None
    }

    /// Becomes the owner of an address.
    fn own(
        &mut self,
        address: IpAddr,
        interface: u32,
        socket: &Socket,
        make_socket: &MakeSocket,
    ) -> io::Result<()> {
        let Some(name) = self.listeners.name(address).filter(|_| self.shares()) else {
            return Ok(());
        };
        let udp = socket.as_fd().try_clone_to_owned()?;
        let sockets = Sockets { udp, name: name.clone(), make_socket: make_socket.clone() };
        self.add(SharedAddress::owned(&self.epoll, address, interface, sockets)?)
    }

    /// Adds an address.
    fn add(&mut self, shared: SharedAddress) -> io::Result<()> {
        self.reaper.extend(reaper::tell(shared.address, &shared.claims));
        self.addresses.add(&self.epoll, shared)
    }

    /// Shares an address with the process that has it, if each trusts the other. This waits for its
    /// answer.
    fn join(
        &mut self,
        address: IpAddr,
        interface: u32,
        make_socket: &MakeSocket,
    ) -> io::Result<Socket> {
        let owner = Arc::new(request_grant(&self.epoll, &self.wakeup, address, interface)?);
        wait(&[owner.as_fd()], Some(GRANT_TIMEOUT))?;
        let grant = Grant::receive(&owner)?.ok_or(io::ErrorKind::TimedOut)?;
        let socket = Socket::from(grant.udp.try_clone()?);
        let ring = grant.ring.try_clone()?;
        let shared = SharedAddress::granted(
            &self.epoll,
            address,
            interface,
            grant,
            owner.clone(),
            make_socket.clone(),
        )?;
        self.attach_ring(address, ring, owner)?;
        self.add(shared)?;
        Ok(socket)
    }

    /// Receives what the owner of an address forwards.
    pub(super) fn attach_ring(
        &mut self,
        address: IpAddr,
        ring: OwnedFd,
        owner: Arc<OwnedFd>,
    ) -> io::Result<()> {
        let reader = Reader::new(ring)?;
        reader.set_asleep(self.sleepers > 0);
        self.incoming.push(IncomingChannel::new(Origin::Owner, address, Some(owner), reader));
        Ok(())
    }

    /// The process of another user that has an address, if that is what keeps this one from it.
    pub(in crate::link) fn other_user(address: IpAddr, interface: u32) -> Option<BindError> {
        let socket = connect_unchecked(address, interface).ok()?;
        let (process, user) = socket.peer()?;
        socket.check().err()?;
        Some(BindError::OtherUser { address, process, user })
    }
}

/// The process that has an address, if it is stopped.
fn stopped(address: IpAddr, interface: u32) -> Option<u32> {
    let process = credentials::process(&connect(address, interface).ok()?).ok()?;
    is_stopped(process).then_some(process)
}
