//! Taking an address, alone or with other processes. May block, and runs without the engine's lock.

use std::{io, net::IpAddr, os::fd::AsFd, sync::Arc, thread, time::Duration};

use socket2::Socket;

use super::{
    claim::ClaimTable,
    hello::Hello,
    members::MakeSocket,
    names::{self, connect, of_address},
    owner::{Common, HANDOVER, SharedAddress},
};
use crate::{
    bind::{BindError, is_stopped},
    clock,
    link::{credentials, name::Name, stranger::Unchecked},
    readiness::wait,
};

/// Time for an owner to grant an address: enough to take over from a stopped owner.
const GRANT_TIMEOUT: Duration = Duration::from_millis(600);
/// Number of waits for a grant. An owner stopped meanwhile keeps the request.
const GRANTS: usize = 2;
/// Time for an address to pass between processes, all of which may wait for the processor.
const PASSING: Duration = Duration::from_secs(3);
/// Attempts to get an address that is taken but not shared: its owner may be ending.
const ENDING_TRIES: usize = 50;

/// Path to other processes of the same user, host and namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "a path's comment describes its fields")]
pub enum Locality {
    /// Through the network stack, like any other host.
    Network,
    /// Through shared memory, unseen by the host's packet filters and tcpdump.
    SharedMemory,
    /// As `SharedMemory`, and processes may share addresses, each with a
    /// [partition](crate::link::SharingLink::partition) of the numbers. The first process receives
    /// for all and must keep [receiving](crate::link::Link::receive); otherwise another takes over.
    /// `partition`: the preferred one, modulo their number; if taken, the next free partition.
    SharedAddress { partition: u8 },
    /// As `Network`, but links of this process may share addresses. `partition` as above.
    SharedInProcess { partition: u8 },
}

impl Locality {
    pub(super) const fn is_in_process(self) -> bool {
        matches!(self, Self::SharedInProcess { .. })
    }
}

pub(in crate::link) struct Acquired {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    /// Socket with the address's name, if made by this process.
    pub(super) name: Option<Arc<Name>>,
    pub(super) shared: Option<SharedAddress>,
}

/// Binds an address's UDP socket, or shares the address with its owner. `exclusive`: fails instead
/// of sharing. Errors: those of making the socket; [`BindError::Taken`], [`BindError::OtherUser`],
/// [`BindError::Stopped`].
pub(in crate::link) fn acquire(
    locality: Locality,
    place @ (address, interface): (IpAddr, u32),
    exclusive: bool,
    make_socket: &MakeSocket,
) -> Result<(Socket, Acquired), BindError> {
    let bind = || make_socket(false).map_err(|source| BindError::of_socket(address, source));
    let acquired = |name, shared| Acquired { address, interface, name, shared };
    let alone = || Ok((bind()?, acquired(None, None)));
    let shares = locality != Locality::SharedMemory;
    let mut tries = if exclusive || !shares { 1 } else { ENDING_TRIES };
    let mut grants = GRANTS;
    let end = clock::now().plus(PASSING);
    loop {
        // the name's holder has the address, or is about to
        match names::listen(address, interface) {
            Ok(name) => match bind() {
                Ok(socket) => {
                    let name = Arc::new(name);
                    let owned = shares.then(|| own(place, &socket, name.clone(), make_socket));
                    let shared = owned.transpose().or_else(|source| match source.kind() {
                        // a process that may have no such files shares nothing
                        io::ErrorKind::FileTooLarge => Ok(None),
                        _ => Err(BindError::System { address, source }),
                    })?;
                    return Ok((socket, acquired(Some(name), shared)));
                }
                Err(error) => {
                    drop(name);
                    tries -= 1;
                    if tries == 0 || !matches!(error, BindError::Taken(_)) {
                        return Err(error);
                    }
                }
            },
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return alone(), // no names
            Err(_) if exclusive => match connect(&of_address(address, interface)) {
                // another user's process has the name, perhaps without the address
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => return alone(),
                // an ending process may hold its UDP socket longer
                Ok(_) | Err(_) => return Err(BindError::Taken(address)),
            },
            Err(_) if !shares => return alone(),
            Err(_) => match join(place, make_socket) {
                Ok((socket, shared)) => return Ok((socket, acquired(None, Some(shared)))),
                Err(error) => {
                    use io::ErrorKind as Kind;
                    let silent = error.kind() == Kind::TimedOut;
                    grants = grants.saturating_sub(usize::from(silent));
                    let may_change = match error.kind() {
                        Kind::TimedOut => grants > 0,
                        // an ending owner, or many requests at once
                        Kind::ConnectionRefused
                        | Kind::ConnectionReset
                        | Kind::BrokenPipe
                        | Kind::WouldBlock => true,
                        _ => false,
                    };
                    let stopped = || stopped(address, interface).filter(|_| silent);
                    if !(may_change || silent && stopped().is_none()) || clock::now() >= end {
                        // the name's holder may not have the address
                        return alone().map_err(|error| match stopped() {
                            Some(process) => BindError::Stopped { address, process },
                            None => other_user(address, interface).unwrap_or(error),
                        });
                    }
                }
            },
        }
        thread::sleep(HANDOVER);
    }
}

fn own(
    place: (IpAddr, u32),
    socket: &Socket,
    name: Arc<Name>,
    make_socket: &MakeSocket,
) -> io::Result<SharedAddress> {
    let udp = socket.as_fd().try_clone_to_owned()?;
    let common = Common::new(udp, name, ClaimTable::new()?, None)?;
    Ok(SharedAddress::new(place, common, make_socket.clone()))
}

/// Shares an address with its owner, if each trusts the other.
fn join(
    place @ (address, interface): (IpAddr, u32),
    make_socket: &MakeSocket,
) -> io::Result<(Socket, SharedAddress)> {
    let owner = connect(&of_address(address, interface))?;
    Hello::JoinAddress.send(&owner)?;
    wait(&[owner.as_fd()], Some(GRANT_TIMEOUT))?;
    let common = Common::receive(&owner)?.ok_or(io::ErrorKind::TimedOut)?;
    let socket = Socket::from(common.udp.try_clone()?);
    Ok((socket, SharedAddress::new(place, common, make_socket.clone())))
}

/// Error for an address that another user's process has.
pub(in crate::link) fn other_user(address: IpAddr, interface: u32) -> Option<BindError> {
    let socket = Unchecked::connect(of_address(address, interface).as_bytes()).ok()?;
    let (process, user) = socket.peer()?;
    socket.check().err()?;
    Some(BindError::OtherUser { address, process, user })
}

fn stopped(address: IpAddr, interface: u32) -> Option<u32> {
    let process = credentials::process(&connect(&of_address(address, interface)).ok()?).ok()?;
    is_stopped(process).then_some(process)
}
