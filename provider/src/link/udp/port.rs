//! A local address and its socket.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use roce_transport::addr::ROCE_UDP_PORT;
use socket2::{Domain, Protocol, Socket, Type};

use super::{message, receive::Overflow};
use crate::{bind::BindError, link::shm::ShmLink, variables};

/// Size of the socket's buffers; the kernel grants what its limit allows.
pub(super) const RECEIVE_BUFFER: usize = 4 << 20;

pub(super) struct Port {
    pub(super) socket: Socket,
    pub(super) address: IpAddr,
    /// Index of its interface; 0 where the address alone determines it.
    pub(super) interface: u32,
    pub(super) overflow: Overflow,
}

impl Port {
    pub(super) fn open(
        address: IpAddr,
        interface: u32,
        shm: Option<&mut ShmLink>,
        exclusive: bool,
    ) -> Result<Self, BindError> {
        let bind = || {
            Self::socket(address, interface).map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => BindError::Taken(address),
                io::ErrorKind::AddrNotAvailable => BindError::NotLocal(address),
                _ => BindError::System { address, source },
            })
        };
        let socket = match shm {
            Some(shm) => shm.acquire(address, interface, exclusive, bind)?,
            None => bind()?,
        };
        let overflow = Overflow::of(&socket);
        Ok(Self { socket, address, interface, overflow })
    }

    /// True if no other process reads its socket.
    pub(super) fn is_read_here(&self, shm: Option<&ShmLink>) -> bool {
        !shm.is_some_and(|shm| shm.is_peer(self.address))
    }

    fn socket(address: IpAddr, interface: u32) -> io::Result<Socket> {
        let socket = Socket::new(
            Domain::for_address(SocketAddr::new(address, 0)),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        // a smaller buffer than asked for only means that less may be under way at once
        let size = variables::receive_buffer().unwrap_or(RECEIVE_BUFFER);
        let _ = socket.set_recv_buffer_size(size);
        let _ = socket.set_send_buffer_size(RECEIVE_BUFFER);
        message::configure(&socket, address.is_ipv6())?;
        configure_sending(&socket, address, interface);
        socket.bind(&Self::socket_address(address, interface).into())?;
        Ok(socket)
    }

    /// A link-local address means something only together with an interface.
    pub(super) fn socket_address(address: IpAddr, interface: u32) -> SocketAddr {
        match address {
            IpAddr::V4(v4) => SocketAddrV4::new(v4, ROCE_UDP_PORT).into(),
            IpAddr::V6(v6) => {
                let scope = if v6.is_unicast_link_local() { interface } else { 0 };
                SocketAddrV6::new(v6, ROCE_UDP_PORT, 0, scope).into()
            }
        }
    }
}

/// Sets how a socket with the address `own` sends to groups: from that address's interface, to
/// members on this host, too, and as far as unicast unless a packet says otherwise. What has no
/// multicast cannot be set so, and then sending fails, and is counted.
fn configure_sending(socket: &Socket, own: IpAddr, interface: u32) {
    let _ = match own {
        IpAddr::V4(own) => socket
            .set_multicast_if_v4(&own)
            .and_then(|()| socket.set_multicast_loop_v4(true))
            .and_then(|()| socket.set_multicast_ttl_v4(64)),
        IpAddr::V6(_) => socket
            .set_multicast_if_v6(interface)
            .and_then(|()| socket.set_multicast_loop_v6(true))
            .and_then(|()| socket.set_multicast_hops_v6(64)),
    };
}
