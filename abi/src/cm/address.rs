use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

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
    match (*address).sa_family.into() {
        AF_INET => {
            let sockaddr_in { sin_addr, sin_port, .. } =
                address.cast::<sockaddr_in>().read_unaligned();
            let ip = Ipv4Addr::from(u32::from_be(sin_addr.s_addr));
            Ok(Some(SocketAddr::from((ip, u16::from_be(sin_port)))))
        }
        AF_INET6 => {
            let sockaddr_in6 { sin6_addr, sin6_port, sin6_flowinfo, sin6_scope_id, .. } =
                address.cast::<sockaddr_in6>().read_unaligned();
            let ip = Ipv6Addr::from(sin6_addr.s6_addr);
            Ok(Some(
                SocketAddrV6::new(ip, u16::from_be(sin6_port), sin6_flowinfo, sin6_scope_id).into(),
            ))
        }
        _ => Err(Errno::of(Rule::Address)),
    }
}

pub(crate) fn write(address: SocketAddr) -> (sockaddr_storage, usize) {
    // SAFETY: Zeros are `AF_UNSPEC`.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    let length = match address {
        SocketAddr::V4(v4) => {
            let c = sockaddr_in {
                sin_family: AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` fits any address.
            unsafe { place.cast::<sockaddr_in>().write(c) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let c = sockaddr_in6 {
                sin6_family: AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: As above.
            unsafe { place.cast::<sockaddr_in6>().write(c) };
            size_of::<sockaddr_in6>()
        }
    };
    (storage, length)
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
