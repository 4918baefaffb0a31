use std::net::SocketAddr;

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use rustix::net::{SocketAddrAny, addr::SocketAddrArg};

use crate::errno::{Errno, Result};
use crate::rule::Rule;

/// `EINVAL` for null and families other than IPv4 and IPv6.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr> {
    optional(address)?.ok_or(Errno::of(Rule::Address))
}

/// `None` for null.
pub(super) unsafe fn optional(address: *const sockaddr) -> Result<Option<SocketAddr>> {
    if address.is_null() {
        return Ok(None);
    }
    let length = match (*address).sa_family.into() {
        AF_INET => size_of::<sockaddr_in>(),
        AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return Err(Errno::of(Rule::Address)),
    };
    // a copy: the program's may be unaligned
    let copy = SocketAddrAny::read(address.cast(), length as u32);
    Ok(Some(copy.try_into()?))
}

pub(crate) fn write(address: SocketAddr) -> (sockaddr_storage, usize) {
    // SAFETY: Zeros are `AF_UNSPEC`.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: `sockaddr_storage` fits any address.
    let length = unsafe { address.write_sockaddr((&raw mut storage).cast()) };
    (storage, length as usize)
}

/// Port in network byte order; 0 without an address.
pub(super) fn port(address: &sockaddr_storage) -> u16 {
    // SAFETY: A whole address.
    let read = unsafe { optional(std::ptr::from_ref(address).cast()) };
    read.ok().flatten().map_or(0, |address| address.port().to_be())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_to_c_and_back() {
        for (text, length) in [("10.1.2.3:7471", 16), ("[fe80::1%3]:7471", 28), ("[::]:0", 28)] {
            let address: SocketAddr = text.parse().unwrap();
            let (c, written) = write(address);
            assert_eq!(written, length, "{text}");
            // SAFETY: A whole address.
            assert_eq!(unsafe { read((&raw const c).cast()) }, Ok(address));
            assert_eq!(port(&c), address.port().to_be());
        }
    }

    #[test]
    fn nothing_else_is_an_address() {
        // SAFETY: Zeros are `AF_UNSPEC`.
        let mut other: sockaddr_storage = unsafe { std::mem::zeroed() };
        assert_eq!(port(&other), 0);
        for family in [libc::AF_UNSPEC, libc::AF_UNIX, 27] {
            other.ss_family = family as u16;
            // SAFETY: A whole address.
            assert_eq!(unsafe { read((&raw const other).cast()) }, Err(Errno::plain(libc::EINVAL)));
        }
        // SAFETY: Null is not read.
        unsafe {
            assert_eq!(read(std::ptr::null()), Err(Errno::plain(libc::EINVAL)));
            assert_eq!(optional(std::ptr::null()), Ok(None));
        }
    }
}
