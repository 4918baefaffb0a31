//! Names of addresses, and of processes there: abstract Unix socket names, which each network
//! namespace has to itself.
//!
//! The name of an address leads to its [owner](super::owner). The name of a process, an address and
//! a partition, is for senders to that process. A process with all numbers has partition 0.

use std::{io, net::IpAddr, os::fd::OwnedFd, thread, time::Duration};

use roce_transport::{addr::ROCE_UDP_PORT, share::IdPartition};

use crate::link::{
    name::{Name, scoped},
    stranger::{Unchecked, is_closing_names},
};

/// Interval and number of attempts to get a name that this process has just given up.
const NAME_RETRY: Duration = Duration::from_millis(1);
const NAME_TRIES: usize = 1000;

/// Listens with the name of an address. Waits while this process is closing a socket with this
/// name. Errors: [`io::ErrorKind::AddrInUse`] if the name is taken.
pub(super) fn listen(address: IpAddr, interface: u32) -> io::Result<Name> {
    let name = of_address(address, interface);
    for _ in 1..NAME_TRIES {
        match Name::listen(name.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_closing_names() => {
                thread::sleep(NAME_RETRY);
            }
            result => return result,
        }
    }
    Name::listen(name.as_bytes())
}

/// Connects to the process with a name, if trusted.
pub(super) fn connect(name: &str) -> io::Result<OwnedFd> {
    Unchecked::connect(name.as_bytes())?.check()
}

pub(super) fn of_address(address: IpAddr, interface: u32) -> String {
    format!("roce {ROCE_UDP_PORT} {}", scoped(address, interface))
}

pub(super) fn of_process(
    address: IpAddr,
    interface: u32,
    partition: Option<IdPartition>,
) -> String {
    format!("{} #{}", of_address(address, interface), partition.map_or(0, IdPartition::get))
}
