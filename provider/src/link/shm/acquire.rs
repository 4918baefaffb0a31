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
    ShmLink,
    channel::IncomingChannel,
    listener::request_grant,
    owner::{Grant, HANDOVER},
    ring::Reader,
    socket::connect,
};
use crate::{bind::BindError, readiness::wait};

/// Time that the owner of an address has to grant it.
const GRANT_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of attempts to have an address while it passes from one process to another.
const HANDOVER_TRIES: usize = 10;

impl ShmLink {
    /// Takes an address: finds it free and has `bind` make its UDP socket, or shares it with the
    /// process that has it, whose socket it is given. `exclusive`: fails instead of sharing.
    ///
    /// # Errors
    /// Those of `bind`; [`BindError::Taken`].
    pub(in crate::link) fn acquire(
        &mut self,
        address: IpAddr,
        interface: u32,
        exclusive: bool,
        bind: impl Fn() -> Result<Socket, BindError>,
    ) -> Result<Socket, BindError> {
        let mut tries = if exclusive || !self.shares { 1 } else { HANDOVER_TRIES };
        loop {
            tries -= 1;
            // a process that has the name has the address, or is about to
            match self.listeners.listen(&self.epoll, address, interface) {
                Ok(()) => match bind() {
                    Ok(socket) => {
                        self.own(address, interface, &socket)
                            .map_err(|source| BindError::System { address, source })?;
                        return Ok(socket);
                    }
                    Err(error) => {
                        self.forget(address);
                        // perhaps its peers have it, of whom none has become its owner yet
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
                Err(_) if !self.shares => return bind(),
                Err(_) => match self.join_shared(address, interface) {
                    Ok(socket) => return Ok(socket),
                    // it has just ended, perhaps
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && tries > 0 => {
                    }
                    // another process has the name, and perhaps not the address
                    Err(_) => {
                        self.forget(address);
                        return bind();
                    }
                },
            }
            thread::sleep(HANDOVER);
        }
    }

    /// Becomes the owner of an address.
    fn own(&mut self, address: IpAddr, interface: u32, socket: &Socket) -> io::Result<()> {
        if self.shares {
            self.addresses.add_owned(address, interface, socket.as_fd().try_clone_to_owned()?)?;
        }
        Ok(())
    }

    /// Shares an address with the process that has it. This waits for its answer.
    fn join_shared(&mut self, address: IpAddr, interface: u32) -> io::Result<Socket> {
        let owner = Arc::new(request_grant(&self.epoll, &self.wakeup, address, interface)?);
        wait(&[owner.as_fd()], Some(GRANT_TIMEOUT))?;
        let Grant { ring, udp, claims } = Grant::receive(&owner)?.ok_or(io::ErrorKind::TimedOut)?;
        let socket = Socket::from(udp.try_clone()?);
        self.attach_ring(address, ring, owner.clone())?;
        self.addresses.add_granted(address, interface, udp, &claims, owner)?;
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
        self.incoming.push(IncomingChannel::new(None, address, owner, reader));
        Ok(())
    }
}
