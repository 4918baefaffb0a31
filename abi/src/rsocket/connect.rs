use std::net::{IpAddr, SocketAddr};

use libc::{AF_INET6, sockaddr, socklen_t};

use super::{
    table::{self, Entry},
    wait::{Blocking, WOULD_BLOCK, until},
};
use crate::{cm::address, prelude::*};

/// IPv4-mapped IPv6 becomes IPv4.
pub(super) unsafe fn given(at: *const sockaddr, length: socklen_t) -> Result<SocketAddr> {
    refuse_if(at.is_null(), Rule::SocketPointer)?;
    let family_only = size_of::<libc::sa_family_t>();
    refuse_if((length as usize) < family_only, Rule::SocketArgument)?;
    let needed = match (*at).sa_family.into() {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return Err(Errno::of(Rule::SocketFamily)),
    };
    refuse_if((length as usize) < needed, Rule::SocketArgument)?;
    let mut address = address::read(at)?;
    address.set_ip(address.ip().to_canonical());
    Ok(address)
}

/// Truncates long addresses.
pub(super) unsafe fn give(
    entry: &Entry,
    mut address: SocketAddr,
    to: *mut sockaddr,
    length: *mut socklen_t,
) {
    if to.is_null() || length.is_null() {
        return;
    }
    if entry.family == AF_INET6
        && let IpAddr::V4(v4) = address.ip()
    {
        address.set_ip(v4.to_ipv6_mapped().into());
    }
    let (storage, size) = address::write(address);
    let room = (*length as usize).min(size);
    std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), to.cast::<u8>(), room);
    *length = size as socklen_t;
}

calls!(
    fn rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        let entry = table::find(fd)?;
        Ok(entry.socket.bind(given(address, length)?)?)
    }

    fn rlisten(fd: c_int, backlog: c_int) -> c_int {
        Ok(table::find(fd)?.socket.listen(usize::try_from(backlog).unwrap_or_default())?)
    }

    fn rgetpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        give_peer(fd, address, length)
    }

    fn rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        let entry = table::find(fd)?;
        let any: IpAddr = match entry.family {
            AF_INET6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
            _ => std::net::Ipv4Addr::UNSPECIFIED.into(),
        };
        let own = entry.socket.local_addr().unwrap_or_else(|| SocketAddr::new(any, 0));
        give(&entry, own, address, length);
        Ok(())
    }
);

waiting_calls!(
    fn raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        until(fd, Blocking::Receiving, |entry| {
            let accepted = entry.accepted(entry.socket.accept()?);
            if let Ok(peer) = accepted.socket.peer_addr() {
                give(&accepted, peer, address, length);
            }
            Ok(table::add(accepted))
        })
    }

    fn rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        let mut begun = false;
        let connected = until(fd, Blocking::Sending, |entry| {
            let result = if begun {
                entry.socket.connected()
            } else {
                entry.socket.connect(given(address, length)?)
            };
            match result {
                Err(rustix::io::Errno::INPROGRESS) if !entry.is_blocking() => {
                    Err(Errno::plain(libc::EINPROGRESS))
                }
                Err(rustix::io::Errno::INPROGRESS) => {
                    begun = true;
                    Err(WOULD_BLOCK)
                }
                Err(rustix::io::Errno::ALREADY) if begun => Err(WOULD_BLOCK),
                other => Ok(other?),
            }
        });
        // connecting continues after this call
        let late = begun && connected == Err(WOULD_BLOCK);
        if late { Err(Errno::plain(libc::EINPROGRESS)) } else { connected }
    }
);

pub(super) unsafe fn give_peer(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<()> {
    let entry = table::find(fd)?;
    give(&entry, entry.socket.peer_addr()?, address, length);
    Ok(())
}
