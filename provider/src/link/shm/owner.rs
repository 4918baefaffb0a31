//! The owner of a shared address, and how a process becomes it.

use std::{
    collections::BTreeSet,
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::{cm::ServiceId, time::Instant};
use tracing::{debug, info};

use super::{
    claim::ClaimTable,
    listener::{Listeners, request_grant},
    ring::Writer,
    sender::ShmSender,
    socket::{is_closed, receive_with, send_with, watch},
};

/// Time after which it is tried again to have an address that passes from one process to another.
pub(super) const HANDOVER: Duration = Duration::from_millis(2);

/// An address that other processes may have, too.
pub(super) struct SharedAddress {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    /// The UDP socket.
    pub(super) udp: OwnedFd,
    pub(super) claims: ClaimTable,
    /// Services that this device listens for.
    pub(super) services: BTreeSet<ServiceId>,
    pub(super) role: Role,
}

/// Role of this process at an address.
pub(super) enum Role {
    Owner,
    /// With a connection to the owner, which is closed when the owner ends.
    Peer(Arc<OwnedFd>),
    /// Has asked the new owner for a grant.
    Requesting(OwnedFd),
    /// The owner has ended. The next one is looked for from this time on.
    Searching(Instant),
}

/// Descriptors that a peer process gets from the owner.
pub(super) struct Grant {
    pub(super) ring: OwnedFd,
    pub(super) udp: OwnedFd,
    pub(super) claims: OwnedFd,
}

/// A grant that this process has got: the address, and the connection to its owner.
pub(super) type Granted = (IpAddr, Grant, Arc<OwnedFd>);

impl Grant {
    /// The owner's grant; nothing while it has not answered.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Self>> {
        match receive_with(socket, &mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
            Ok((0, _)) => Err(io::ErrorKind::ConnectionRefused.into()),
            Ok((_, descriptors)) => {
                let [ring, udp, claims] = descriptors
                    .try_into()
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                Ok(Some(Self { ring, udp, claims }))
            }
        }
    }
}

impl SharedAddress {
    pub(super) const fn is_owner(&self) -> bool {
        matches!(self.role, Role::Owner)
    }

    /// Grants the address to the process at the other end of `socket`, which `wakeup` wakes.
    pub(super) fn grant(&self, socket: &OwnedFd, wakeup: OwnedFd) -> io::Result<ShmSender> {
        let (writer, memory) = Writer::new()?;
        let descriptors = [memory.as_fd(), self.udp.as_fd(), self.claims.as_fd()];
        send_with(socket, &[0], &descriptors)?;
        Ok(ShmSender::new(writer, wakeup))
    }

    /// If the owner has ended, looks for the next one, which may be this process. Returns what a
    /// new owner has granted.
    pub(super) fn elect_owner(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
        wakeup: &OwnedFd,
        listeners: &mut Listeners,
    ) -> Option<Granted> {
        let mut granted = None;
        let again = Role::Searching(now.plus(HANDOVER));
        self.role = match mem::replace(&mut self.role, again) {
            Role::Peer(owner) if is_closed(&owner) => Role::Searching(now),
            Role::Requesting(socket) => match Grant::receive(&socket) {
                Ok(None) => Role::Requesting(socket),
                Ok(Some(grant)) => {
                    let owner = Arc::new(socket);
                    debug!(address = %self.address, "another process receives for this one");
                    granted = Some((self.address, grant, owner.clone()));
                    Role::Peer(owner)
                }
                Err(_) => return None,
            },
            other => other,
        };
        if matches!(self.role, Role::Searching(due) if due <= now) {
            self.role = if listeners.listen(epoll, self.address, self.interface).is_ok() {
                // From now on this process reads the UDP socket. A thread that sleeps does so on
                // this link's descriptor.
                let _ = watch(epoll, &self.udp);
                info!(address = %self.address, "this process receives for all at the address");
                Role::Owner
            } else {
                let requested = request_grant(epoll, wakeup, self.address, self.interface);
                requested.map_or(Role::Searching(now.plus(HANDOVER)), Role::Requesting)
            };
        }
        granted
    }
}
