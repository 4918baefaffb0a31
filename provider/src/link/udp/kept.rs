//! UDP sockets that systemd keeps while the service is started anew, so that no other process gets
//! their port meanwhile (`FDSTORE` in sd_notify(3)).

#![allow(unsafe_code, reason = "descriptors that a process is started with are numbers")]

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, FromRawFd, OwnedFd},
    sync::OnceLock,
};

use roce_transport::addr::ROCE_UDP_PORT;
use sd_notify::NotifyState;
use socket2::{Socket, Type};
use tracing::debug;

use crate::sync::Mutex;

/// The socket of an address that this process was started with.
pub(super) fn take(address: IpAddr, interface: u32) -> Option<Socket> {
    static SOCKETS: OnceLock<Mutex<Vec<Socket>>> = OnceLock::new();
    let mut sockets = SOCKETS.get_or_init(|| Mutex::new(given())).lock();
    let found = sockets.iter().position(|socket| is_of(socket, address, interface))?;
    Some(sockets.swap_remove(found))
}

/// The sockets that this process was started with.
fn given() -> Vec<Socket> {
    let descriptors = sd_notify::listen_fds().into_iter().flatten();
    // SAFETY: The service manager has opened these descriptors for this process, as it says by its
    // number (LISTEN_PID), and nothing else here takes them: this is called once.
    let sockets = descriptors.map(|number| Socket::from(unsafe { OwnedFd::from_raw_fd(number) }));
    sockets.collect()
}

fn is_of(socket: &Socket, address: IpAddr, interface: u32) -> bool {
    let local = socket.local_addr().ok().and_then(|local| local.as_socket());
    let is_local = match local {
        Some(SocketAddr::V6(local)) if local.ip().is_unicast_link_local() => {
            IpAddr::from(*local.ip()) == address && local.scope_id() == interface
        }
        other => other.is_some_and(|local| local.ip() == address),
    };
    is_local
        && socket.r#type().is_ok_and(|kind| kind == Type::DGRAM)
        && local.is_some_and(|local| local.port() == ROCE_UDP_PORT)
}

/// Has systemd keep the socket of an address, if this process is a service that may.
pub(super) fn keep(socket: &Socket, address: IpAddr, interface: u32) {
    let name = name(address, interface);
    let state = [NotifyState::FdStore, NotifyState::FdName(&name)];
    note(sd_notify::notify_with_fds(&state, &[socket.as_fd()]));
}

/// Has it keep that no more.
pub(super) fn discard(address: IpAddr, interface: u32) {
    let name = name(address, interface);
    note(sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)]));
}

/// Names of descriptors have no colons.
fn name(address: IpAddr, interface: u32) -> String {
    format!("{address}%{interface}").replace(':', "_")
}

fn note(result: io::Result<()>) {
    if let Err(error) = result {
        debug!(%error, "the service manager keeps no sockets");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_address() {
        let socket = |address: SocketAddr| {
            let socket = Socket::new(socket2::Domain::for_address(address), Type::DGRAM, None);
            let socket = socket.unwrap();
            socket.bind(&address.into()).unwrap();
            socket
        };
        let [own, other]: [IpAddr; 2] = [[127, 79, 49, 1].into(), [127, 79, 49, 2].into()];
        let found = socket((own, ROCE_UDP_PORT).into());
        assert!(is_of(&found, own, 0) && !is_of(&found, other, 0));
        let port = socket((other, 0).into());
        assert!(!is_of(&port, other, 0));
    }
}
