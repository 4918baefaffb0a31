//! Taking an address, alone or together with other processes. This may wait, and is done without the
//! engine's lock.

use std::{io, net::IpAddr, os::fd::AsFd, sync::Arc, thread, time::Duration};

use socket2::Socket;

use super::{
    hello::say_share,
    members::MakeSocket,
    names::{self, connect, connect_unchecked},
    owner::{Common, HANDOVER, SharedAddress},
};
use crate::{
    bind::{BindError, is_stopped},
    clock,
    link::{credentials, name::Name},
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

/// Those who may have the addresses of a link besides it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) enum Scope {
    /// Nobody.
    None,
    /// Other links of this process. Packets take the network stack.
    InProcess,
    /// Those, and other processes.
    All,
}

/// An address that was taken.
pub(in crate::link) struct Acquired {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    /// The socket with the address's name, if this process has made it.
    pub(super) name: Option<Arc<Name>>,
    /// What other processes may share.
    pub(super) shared: Option<SharedAddress>,
}

/// Takes an address: finds it free and makes its UDP socket, or shares it with the process that has
/// it, whose socket it is granted. `exclusive`: fails instead of sharing.
///
/// # Errors
/// Those of making the socket; [`BindError::Taken`], [`BindError::OtherUser`],
/// [`BindError::Stopped`].
pub(in crate::link) fn acquire(
    scope: Scope,
    (address, interface): (IpAddr, u32),
    exclusive: bool,
    make_socket: &MakeSocket,
) -> Result<(Socket, Acquired), BindError> {
    let bind = || make_socket(false).map_err(|source| BindError::of_socket(address, source));
    let alone = || Acquired { address, interface, name: None, shared: None };
    let shares = scope != Scope::None;
    let mut tries = if exclusive || !shares { 1 } else { ENDING_TRIES };
    let mut grants = GRANTS;
    let end = clock::now().plus(PASSING);
    loop {
        // a process that has the name has the address, or is about to
        match names::listen(address, interface) {
            Ok(name) => match bind() {
                Ok(socket) => {
                    let name = Arc::new(name);
                    let shared = shares.then(|| {
                        let udp = socket.as_fd().try_clone_to_owned()?;
                        let make_socket = make_socket.clone();
                        SharedAddress::owned((address, interface), udp, name.clone(), make_socket)
                    });
                    let shared = match shared.transpose() {
                        // a process that may have no such files shares nothing
                        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => None,
                        shared => shared.map_err(|it| BindError::System { address, source: it })?,
                    };
                    return Ok((socket, Acquired { name: Some(name), shared, ..alone() }));
                }
                Err(error) => {
                    drop(name);
                    tries -= 1;
                    if tries == 0 || !matches!(error, BindError::Taken(_)) {
                        return Err(error);
                    }
                }
            },
            // there are no such names here
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                return Ok((bind()?, alone()));
            }
            Err(_) if exclusive => match connect(address, interface) {
                Ok(_) => return Err(BindError::Taken(address)),
                // it has just ended, and its UDP socket perhaps not yet
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(BindError::Taken(address));
                }
                // another user's process has the name, and perhaps not the address
                Err(_) => return Ok((bind()?, alone())),
            },
            Err(_) if !shares => return Ok((bind()?, alone())),
            Err(_) => match join(address, interface, make_socket) {
                Ok((socket, shared)) => {
                    return Ok((socket, Acquired { shared: Some(shared), ..alone() }));
                }
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
                        let silent = error.kind() == io::ErrorKind::TimedOut;
                        let socket = bind().map_err(|error| {
                            match stopped(address, interface).filter(|_| silent) {
                                Some(process) => BindError::Stopped { address, process },
                                None => other_user(address, interface).unwrap_or(error),
                            }
                        });
                        return Ok((socket?, alone()));
                    }
                }
            },
        }
        thread::sleep(HANDOVER);
    }
}

/// Shares an address with the process that has it, if each trusts the other.
fn join(
    address: IpAddr,
    interface: u32,
    make_socket: &MakeSocket,
) -> io::Result<(Socket, SharedAddress)> {
    let owner = connect(address, interface)?;
    say_share(&owner)?;
    wait(&[owner.as_fd()], Some(GRANT_TIMEOUT))?;
    let common = Common::receive(&owner)?.ok_or(io::ErrorKind::TimedOut)?;
    let socket = common.socket()?;
    Ok((socket, SharedAddress::granted((address, interface), common, make_socket.clone())))
}

/// The process of another user that has an address, if that is what keeps this one from it.
pub(in crate::link) fn other_user(address: IpAddr, interface: u32) -> Option<BindError> {
    let socket = connect_unchecked(address, interface).ok()?;
    let (process, user) = socket.peer()?;
    socket.check().err()?;
    Some(BindError::OtherUser { address, process, user })
}

/// The process that has an address, if it is stopped.
fn stopped(address: IpAddr, interface: u32) -> Option<u32> {
    let process = credentials::process(&connect(address, interface).ok()?).ok()?;
    is_stopped(process).then_some(process)
}
