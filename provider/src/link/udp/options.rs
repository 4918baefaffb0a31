//! Options of the sockets, and what the system grants of them.

use std::{io, net::IpAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::notice::Dispensable;

/// Size of a socket's buffers that is asked for by default.
const BUFFER: usize = 4 << 20;
/// Receive buffers below this are small: a single sender at full speed fills one in less time than
/// a process may have to wait for the processor.
const SMALL: usize = 1 << 20;
/// Source ports of an address by default, and at most.
const SOURCE_PORTS: usize = 16;
const MAX_SOURCE_PORTS: usize = 64;

/// Options of the sockets of a [`UdpLink`](super::UdpLink).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SocketOptions {
    /// Size of each receive buffer in bytes, 4 MiB by default. The kernel grants at most
    /// `net.core.rmem_max`, and takes it twice, since its own bookkeeping counts, too.
    pub receive_buffer: Option<usize>,
    /// Number of UDP source ports of each address, up to 64, that flows are spread over, so that a
    /// network with several paths uses all of them. By default 16; on loopback, which has one path,
    /// none. 0 or 1: everything leaves from port 4791.
    pub source_ports: Option<usize>,
    /// The most datagrams that are handed to the kernel as one run; by default as many as it takes.
    /// 1: each by itself. That is for network cards that cut runs themselves and number the IPv4
    /// identifications otherwise than Linux does: the peer counts a wrong ICRC (`bad_icrc`).
    pub segments: Option<usize>,
    /// True for the service that receives for programs of all users: it has the addresses itself.
    pub receives_for_users: bool,
}

impl SocketOptions {
    fn wanted(&self) -> usize {
        // the kernel takes an int, and cuts it to its limit
        self.receive_buffer.unwrap_or(BUFFER).min(i32::MAX as usize)
    }

    /// Asks for the receive buffer; a smaller one only means that less may be under way at once.
    pub(in crate::link) fn set_receive_buffer(&self, socket: &Socket) {
        static SO_RCVBUF: Dispensable =
            Dispensable::new("SO_RCVBUF", "receive buffers have the size that they have");
        let result = socket.set_recv_buffer_size(self.wanted());
        result.unwrap_or_else(|error| SO_RCVBUF.refused(&error));
    }

    /// Asks for the send buffer.
    pub(in crate::link) fn set_send_buffer(socket: &Socket) {
        static SO_SNDBUF: Dispensable =
            Dispensable::new("SO_SNDBUF", "send buffers have the size that they have");
        let result = socket.set_send_buffer_size(BUFFER);
        result.unwrap_or_else(|error| SO_SNDBUF.refused(&error));
    }

    /// Number of source ports besides 4791 for an address.
    pub(super) fn source_ports(&self, address: IpAddr) -> usize {
        let by_default = if address.is_loopback() { 0 } else { SOURCE_PORTS };
        match self.source_ports.unwrap_or(by_default) {
            0 | 1 => 0,
            count => count.min(MAX_SOURCE_PORTS),
        }
    }

    /// Size in bytes that the system grants such a socket's receive buffer now.
    ///
    /// # Errors
    /// When no socket can be made.
    pub fn granted_receive_buffer(&self) -> io::Result<usize> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        self.set_receive_buffer(&socket);
        socket.recv_buffer_size()
    }

    /// What to do about a receive buffer of this size that was granted; `None`: nothing, because it
    /// is large enough, or as small as was asked for.
    #[must_use]
    pub fn advice(&self, granted: usize) -> Option<String> {
        (granted < SMALL && granted / 2 < self.wanted()).then(|| {
            format!(
                "small, so a burst can overflow it; `sysctl -w net.core.rmem_max={BUFFER}` lets \
                 programs that start afterwards have more"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_for_networks_that_may_have_several_paths() {
        let [far, near]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [127, 0, 0, 1].into()];
        let ports = |source_ports, address| {
            SocketOptions { source_ports, ..SocketOptions::default() }.source_ports(address)
        };
        assert_eq!([ports(None, far), ports(None, near)], [16, 0]);
        assert_eq!([0, 1, 2, 64, 65].map(|count| ports(Some(count), far)), [0, 0, 2, 64, 64]);
        assert_eq!(ports(Some(8), near), 8);
    }

    #[test]
    fn a_small_receive_buffer_is_told_unless_it_was_asked_for() {
        let advice = |receive_buffer, granted| {
            SocketOptions { receive_buffer, ..SocketOptions::default() }.advice(granted).is_some()
        };
        assert!(advice(None, 425_984), "what Linux grants by default");
        assert!(advice(Some(300_000), 425_984) && !advice(Some(212_992), 425_984));
        assert!(!advice(None, 1 << 20));
    }

    #[test]
    fn what_is_granted_is_what_a_socket_gets() {
        let options = SocketOptions { receive_buffer: Some(100_000), ..SocketOptions::default() };
        assert_eq!(options.granted_receive_buffer().unwrap(), 200_000);
    }
}
