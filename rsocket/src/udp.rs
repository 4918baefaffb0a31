use std::{
    io, mem,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// IPv4 addresses are never mapped, even with an IPv6 socket.
pub(super) struct Udp {
    socket: UdpSocket,
    v6: bool,
}

impl Udp {
    pub(super) fn new(v6: bool) -> io::Result<Self> {
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        Ok(Self { socket: socket.into(), v6 })
    }

    pub(super) fn set_reuse_addr(&self, reuse: bool) -> io::Result<()> {
        SockRef::from(&self.socket).set_reuse_address(reuse)
    }

    pub(super) fn set_only_v6(&self, only: bool) -> io::Result<()> {
        SockRef::from(&self.socket).set_only_v6(only)
    }

    pub(super) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let any = self.v6 && address.ip().is_unspecified();
        let address = if any {
            SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port())
        } else {
            self.inside(address)
        };
        SockRef::from(&self.socket).bind(&address.into())
    }

    /// Port 0 while unbound.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().map(outside)
    }

    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.socket.recv_from(room)?;
        Ok((length, outside(from)))
    }

    /// `None`: the system chooses the local address.
    pub(super) fn send(
        &self,
        bytes: &[u8],
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<()> {
        let to = self.inside(to);
        let Some(from) = from else { return self.socket.send_to(bytes, to).map(drop) };
        let to = SockAddr::from(to);
        match (self.v6, from) {
            (false, IpAddr::V4(from)) => {
                // SAFETY: Zeros are valid.
                #[allow(unsafe_code, reason = "libc's structures have no other constructor")]
                let mut info: libc::in_pktinfo = unsafe { mem::zeroed() };
                info.ipi_spec_dst.s_addr = u32::from_ne_bytes(from.octets());
                self.send_with(bytes, &to, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
            }
            (true, from) => {
                let from = match from {
                    IpAddr::V4(from) => from.to_ipv6_mapped(),
                    IpAddr::V6(from) => from,
                };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: from.octets() },
                    ipi6_ifindex: 0,
                };
                self.send_with(bytes, &to, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
            }
            (false, IpAddr::V6(_)) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    #[allow(unsafe_code, reason = "no safe interface carries IP_PKTINFO")]
    fn send_with<T: Copy>(
        &self,
        bytes: &[u8],
        to: &SockAddr,
        level: libc::c_int,
        kind: libc::c_int,
        info: T,
    ) -> io::Result<()> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        const { assert!(size_of::<T>() <= 64 - size_of::<libc::cmsghdr>()) };
        let mut control = Control([0; 64]);
        let mut piece =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: Zeros are valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: `control` has aligned room for one header and its data. The kernel only reads
        // address, piece and control, which outlive the call.
        let sent = unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<T>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(info);
            libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn inside(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.v6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            other => other,
        }
    }
}

/// Unmaps IPv4; keeps a link-local scope.
fn outside(address: SocketAddr) -> SocketAddr {
    match (address.ip().to_canonical(), address) {
        (IpAddr::V6(ip), SocketAddr::V6(v6)) => {
            SocketAddrV6::new(ip, address.port(), 0, v6.scope_id()).into()
        }
        (ip, _) => SocketAddr::new(ip, address.port()),
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn messages_leave_from_the_address_that_is_wanted() {
        for v6 in [false, true] {
            let receiver = Udp::new(v6).unwrap();
            receiver.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let to = receiver.local_addr().unwrap();
            assert!(to.is_ipv4() && to.port() != 0);
            let sender = Udp::new(v6).unwrap();
            sender.bind("0.0.0.0:0".parse().unwrap()).unwrap();
            for from in [None, Some(Ipv4Addr::new(127, 0, 0, 77).into())] {
                sender.send(b"hello", to, from).unwrap();
                let mut room = [0; 9];
                let (length, source) = receiver.receive(&mut room).unwrap();
                assert_eq!(&room[..length], b"hello");
                assert_eq!(source.ip(), from.unwrap_or(Ipv4Addr::LOCALHOST.into()));
                assert_eq!(source.port(), sender.local_addr().unwrap().port());
            }
            let elsewhere = Ipv4Addr::new(192, 0, 2, 1).into();
            assert!(sender.send(b"hello", to, Some(elsewhere)).is_err(), "no own address");
            let empty = receiver.receive(&mut [0; 9]).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        }
        let v4 = Udp::new(false).unwrap();
        let from = Some(Ipv6Addr::LOCALHOST.into());
        assert!(v4.send(b"x", "127.0.0.1:9".parse().unwrap(), from).is_err());
    }
}
