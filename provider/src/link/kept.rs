//! Descriptors that systemd keeps during restarts (`FDSTORE` in sd_notify(3)): the UDP sockets,
//! which keep the port from others, and the file of assigned numbers.

#![allow(unsafe_code, reason = "descriptors that a process is started with are numbers")]

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    sync::OnceLock,
};

use sd_notify::NotifyState;
use tracing::debug;

use crate::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    Socket,
    State,
}

impl Kept {
    /// Descriptor names have no colons.
    fn name(self, address: IpAddr, interface: u32) -> String {
        let kind = if self == Self::Socket { "socket" } else { "state" };
        format!("{kind} {address}%{interface}").replace(':', "_")
    }
}

pub(super) fn take(kept: Kept, address: IpAddr, interface: u32) -> Option<OwnedFd> {
    static GIVEN: OnceLock<Mutex<BTreeMap<String, OwnedFd>>> = OnceLock::new();
    let mut given = GIVEN.get_or_init(|| Mutex::new(given())).lock();
    given.remove(&kept.name(address, interface))
}

fn given() -> BTreeMap<String, OwnedFd> {
    let descriptors = sd_notify::listen_fds_with_names().into_iter().flatten();
    // SAFETY: The service manager opened these descriptors for this process (LISTEN_PID). Nothing
    // else takes them: this is called once.
    let owned = |number| unsafe { OwnedFd::from_raw_fd(number) };
    descriptors.map(|(number, name)| (name, owned(number))).collect()
}

/// Has no effect outside a systemd service.
pub(super) fn keep(kept: Kept, descriptor: impl AsFd, address: IpAddr, interface: u32) {
    let name = kept.name(address, interface);
    let state = [NotifyState::FdStore, NotifyState::FdName(&name)];
    log_failure(sd_notify::notify_with_fds(&state, &[descriptor.as_fd()]));
}

pub(super) fn discard(kept: Kept, address: IpAddr, interface: u32) {
    let name = kept.name(address, interface);
    log_failure(sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)]));
}

fn log_failure(result: io::Result<()>) {
    if let Err(error) = result {
        debug!(%error, "the service manager did not store the socket");
    }
}
