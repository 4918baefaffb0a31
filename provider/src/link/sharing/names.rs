//! Names of addresses, and of the processes there, in the abstract name space of Unix sockets.
//! There is one per network namespace, as the addresses are.
//!
//! By the name of an address a process finds the [owner](super::owner). By the name of a process,
//! which is the address's with the process's partition behind, it is found by those that send to
//! it. Partition 0 is that of a process that has all numbers.

use std::{io, net::IpAddr, os::fd::OwnedFd, thread, time::Duration};

use roce_transport::{addr::ROCE_UDP_PORT, share::IdPartition};

use crate::link::{
    name::Name,
    stranger::{Unchecked, is_closing_names},
};

/// Time after which a name is tried again that this process has just given up, and number of times.
const NAME_RETRY: Duration = Duration::from_millis(1);
const NAME_TRIES: usize = 1000;

/// A socket with the name of an address; [`io::ErrorKind::AddrInUse`] if there is one already. It
/// waits for one of this process's that is just being closed.
pub(super) fn listen(address: IpAddr, interface: u32) -> io::Result<Name> {
    let name = name(address, interface);
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

/// A socket with the name of a process at an address. It does not wait.
pub(super) fn listen_directly(
    address: IpAddr,
    interface: u32,
    partition: Option<IdPartition>,
) -> io::Result<Name> {
    Name::listen(direct_name(address, interface, partition).as_bytes())
}

/// A connection to whoever has the name of an address.
pub(super) fn connect_unchecked(address: IpAddr, interface: u32) -> io::Result<Unchecked> {
    Unchecked::connect(name(address, interface).as_bytes())
}

/// A connection to the process that has the name of an address, if that is to be trusted.
pub(super) fn connect(address: IpAddr, interface: u32) -> io::Result<OwnedFd> {
    connect_unchecked(address, interface)?.check()
}

/// A connection to the process with this partition at an address, if that is to be trusted.
pub(super) fn connect_directly(
    address: IpAddr,
    interface: u32,
    partition: Option<IdPartition>,
) -> io::Result<OwnedFd> {
    Unchecked::connect(direct_name(address, interface, partition).as_bytes())?.check()
}

/// The name of an address's socket. A link-local address means something only together with an
/// interface.
fn name(address: IpAddr, interface: u32) -> String {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            format!("roce {ROCE_UDP_PORT} {v6}%{interface}")
        }
        _ => format!("roce {ROCE_UDP_PORT} {address}"),
    }
}

fn direct_name(address: IpAddr, interface: u32, partition: Option<IdPartition>) -> String {
    format!("{} #{}", name(address, interface), partition.map_or(0, IdPartition::get))
}
