//! A local address and its sockets.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};

use roce_transport::{addr::ROCE_UDP_PORT, share::IdPartition};
use socket2::Socket;

use super::{
    flows::{self, FlowSocket},
    message,
    options::SocketOptions,
    receive::Overflow,
};
use crate::{
    bind::BindError,
    link::{
        kept::{self, Kept},
        share::{Client, DIRECTORY},
        sharing::{self, Acquired, Locality, MakeSocket},
    },
};

pub(super) struct BoundAddress {
    pub(super) socket: Socket,
    pub(super) address: IpAddr,
    /// Interface index; 0 if the address suffices.
    pub(super) interface: u32,
    pub(super) overflow: Overflow,
    /// Another process's socket of a shared address, read here.
    pub(super) member: Option<(Socket, Overflow)>,
    pub(super) flows: Vec<FlowSocket>,
    /// Source port of all else if the service has 4791.
    pub(super) control: Option<u16>,
}

pub(super) struct Opened {
    pub(super) bound: BoundAddress,
    pub(super) acquired: Option<Acquired>,
    /// Set if the service receives there.
    pub(super) client: Option<Client>,
}

impl BoundAddress {
    /// `wanted`: the partition at other addresses.
    pub(super) fn open(
        address: IpAddr,
        interface: u32,
        locality: Locality,
        exclusive: bool,
        wanted: Option<IdPartition>,
        options: &SocketOptions,
    ) -> Result<Opened, BindError> {
        let client = if options.receives_for_users || exclusive {
            None
        } else {
            let joined = Client::join(Path::new(DIRECTORY), address, interface, wanted);
            joined.map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => BindError::Full(address),
                _ => BindError::Service { address, source },
            })?
        };
        let make_socket: MakeSocket = {
            let options = *options;
            Arc::new(move |reuse_port| Self::bind(address, interface, &options, reuse_port))
        };
        let error = |source| BindError::of_socket(address, source);
        let (socket, acquired) = match locality {
            _ if client.is_some() => (None, None),
            Locality::Network => {
                let socket = make_socket(false).map_err(|source| {
                    let is_taken = source.kind() == io::ErrorKind::AddrInUse;
                    let other = is_taken.then(|| sharing::other_user(address, interface));
                    other.flatten().unwrap_or_else(|| error(source))
                })?;
                (Some(socket), None)
            }
            _ => {
                let place = (address, interface);
                let (socket, acquired) =
                    sharing::acquire(locality, place, exclusive, &make_socket)?;
                (Some(socket), Some(acquired))
            }
        };
        let ports = options.source_ports(address).max(usize::from(socket.is_none()));
        let flows = flows::open(address, interface, ports);
        let (socket, control) = match (socket, flows.first()) {
            (Some(socket), _) => (socket, None),
            (None, Some(flow)) => (flow.socket.try_clone().map_err(error)?, Some(flow.port)),
            (None, None) => return Err(error(io::Error::from_raw_os_error(libc::EMFILE))),
        };
        let overflow = Overflow::of(&socket);
        let bound = Self { socket, address, interface, overflow, member: None, flows, control };
        Ok(Opened { bound, acquired, client })
    }

    pub(super) fn dropped(&self) -> u64 {
        let member = self.member.as_ref().map_or(0, |(_, overflow)| overflow.dropped);
        self.overflow.dropped + member
    }

    pub(super) fn sender(&self, source_port: u16) -> Option<&Socket> {
        if source_port == ROCE_UDP_PORT {
            return Some(&self.socket);
        }
        self.flows.iter().find(|flow| flow.port == source_port).map(|flow| &flow.socket)
    }

    /// `reuse_port`: others may share address and port.
    fn bind(
        address: IpAddr,
        interface: u32,
        options: &SocketOptions,
        reuse_port: bool,
    ) -> io::Result<Socket> {
        if options.receives_for_users
            && let Some(socket) = kept::take(Kept::Socket, address, interface)
        {
            return Ok(socket.into()); // configured before
        }
        let socket = message::new_socket(address)?;
        options.set_receive_buffer(&socket);
        SocketOptions::set_send_buffer(&socket);
        message::configure(&socket, address.is_ipv6())?;
        message::configure_multicast(&socket, address, interface);
        if reuse_port {
            message::named("SO_REUSEPORT", socket.set_reuse_port(true))?;
        }
        socket.bind(&message::socket_address(address, interface, ROCE_UDP_PORT).into())?;
        if options.receives_for_users {
            kept::keep(Kept::Socket, &socket, address, interface);
        }
        Ok(socket)
    }

    pub(super) fn peer(&self, peer: IpAddr) -> SocketAddr {
        message::socket_address(peer, self.interface, ROCE_UDP_PORT)
    }
}
