//! Names of addresses, and of the processes there, in the abstract name space of Unix sockets, of
//! which there is one per network namespace.
//!
//! The name of an address leads to its [owner](super::owner). The name of a process, with its
//! partition behind the address, is for processes that send to it. A process with all numbers has
//! partition 0.

use std::{io, net::IpAddr, os::fd::OwnedFd, thread, time::Duration};

use roce_transport::{addr::ROCE_UDP_PORT, share::IdPartition};

use crate::link::{
    name::Name,
    stranger::{Unchecked, is_closing_names},
};

/// Time between attempts to get a name that this process has just given up, and their number.
const NAME_RETRY: Duration = Duration::from_millis(1);
const NAME_TRIES: usize = 1000;

/// A socket with the name of an address. This waits for one of this process's that is just being
/// closed. Errors: [`io::ErrorKind::AddrInUse`] if there is one already.
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

/// A connection to the process with a name, if it is to be trusted.
pub(super) fn connect(name: &str) -> io::Result<OwnedFd> {
    Unchecked::connect(name.as_bytes())?.check()
}

/// The name of an address. A link-local one means something only with an interface.
pub(super) fn of_address(address: IpAddr, interface: u32) -> String {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            format!("roce {ROCE_UDP_PORT} {v6}%{interface}")
        }
        _ => format!("roce {ROCE_UDP_PORT} {address}"),
    }
}

/// The name of the process with a partition at an address.
pub(super) fn of_process(
    address: IpAddr,
    interface: u32,
    partition: Option<IdPartition>,
) -> String {
    format!("{} #{}", of_address(address, interface), partition.map_or(0, IdPartition::get))
}
