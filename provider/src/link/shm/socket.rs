//! Unix sockets in the abstract name space, one name per address, and their messages.

use std::{
    fs, io,
    mem::MaybeUninit,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    thread,
    time::Duration,
};

use roce_transport::{addr::ROCE_UDP_PORT, share::IdPartition};
use rustix::{
    event::{Timespec, epoll},
    fs::OFlags,
    net::RecvFlags,
};

pub(super) use crate::link::descriptors::{
    MAX_DESCRIPTORS, peek_with, poll_with, receive_with, send_with,
};
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

/// The same for one of several processes at an address, the one with this partition. It does not wait.
pub(super) fn listen_directly(
    address: IpAddr,
    interface: u32,
    partition: IdPartition,
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

/// A connection to one of several processes at an address, the one with this partition, if that is to
/// be trusted.
pub(super) fn connect_directly(
    address: IpAddr,
    interface: u32,
    partition: IdPartition,
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

fn direct_name(address: IpAddr, interface: u32, partition: IdPartition) -> String {
    format!("{} #{}", name(address, interface), partition.get())
}

/// True if the process at the other end has closed the connection, or has ended.
pub(super) fn is_closed(socket: &OwnedFd) -> bool {
    match rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

/// What it means that a watched descriptor is readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readable {
    /// A process has come, said something, or gone.
    News = 0,
    /// Datagrams have arrived, which this process reads.
    Datagrams = 1,
    /// Something has arrived that another process is to read. It is said once, until it is watched
    /// anew.
    Others = 2,
}

/// Number of descriptors of which it is heard in one go that they are readable.
const EVENTS: usize = 16;

/// True if there is news, and if something has arrived that another process is to read.
pub(super) fn news(epoll: &OwnedFd) -> (bool, bool) {
    let mut events = [const { MaybeUninit::uninit() }; EVENTS];
    let Ok((events, _)) = epoll::wait(epoll, &mut events, Some(&Timespec::default())) else {
        return (false, false);
    };
    let says = |it: Readable| events.iter().any(|event| event.data.u64() == it as u64);
    (says(Readable::News) || events.len() == EVENTS, says(Readable::Others))
}

/// Watches a descriptor for news.
pub(super) fn watch(epoll: &OwnedFd, descriptor: impl AsFd) -> io::Result<()> {
    watch_for(epoll, descriptor, Readable::News)
}

/// Watches a descriptor, in this way from now on.
pub(super) fn watch_for(
    epoll: &OwnedFd,
    descriptor: impl AsFd,
    readable: Readable,
) -> io::Result<()> {
    let once = if readable == Readable::Others {
        epoll::EventFlags::ONESHOT
    } else {
        epoll::EventFlags::empty()
    };
    let (data, flags) = (epoll::EventData::new_u64(readable as u64), epoll::EventFlags::IN | once);
    match epoll::modify(epoll, &descriptor, data, flags) {
        Err(rustix::io::Errno::NOENT) => Ok(epoll::add(epoll, descriptor, data, flags)?),
        result => Ok(result?),
    }
}

/// Watches a descriptor no more. It must be said: other processes have the same socket, so that
/// closing it does not take it out.
pub(super) fn unwatch(epoll: &OwnedFd, descriptor: impl AsFd) {
    let _ = epoll::delete(epoll, descriptor);
}

/// What wakes another process, if it is that: a counter that lets no writer wait. A full pipe would
/// stop this process under its lock, and one that is closed would end it.
pub(super) fn wakeup(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    let link = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    let flags = rustix::fs::fcntl_getfl(&descriptor)?;
    if link == Path::new("anon_inode:[eventfd]") && flags.contains(OFlags::NONBLOCK) {
        Ok(descriptor)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::link::stranger::unix_socket;

    #[test]
    fn only_a_counter_that_lets_nobody_wait_wakes() {
        let counter = |flags| eventfd(0, EventfdFlags::CLOEXEC | flags).unwrap();
        assert!(wakeup(counter(EventfdFlags::NONBLOCK)).is_ok());
        assert!(wakeup(counter(EventfdFlags::empty())).is_err());
        assert!(wakeup(unix_socket().unwrap()).is_err());
        assert!(wakeup(fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
