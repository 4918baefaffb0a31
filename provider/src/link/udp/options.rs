//! Socket options and granted buffer sizes.

use std::{io, net::IpAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::message::{SO_RCVBUF, SO_SNDBUF};

const BUFFER: usize = 4 << 20;
/// Smaller receive buffers get advice: one fast sender fills them before a process is scheduled.
const SMALL: usize = 1 << 20;
const SOURCE_PORTS: usize = 16;
const MAX_SOURCE_PORTS: usize = 64;

/// Options of the sockets of a [`UdpLink`](super::UdpLink).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SocketOptions {
    /// Receive buffer in bytes, default 4 MiB. The kernel grants up to `net.core.rmem_max`, doubled
    /// for its overhead.
    pub receive_buffer: Option<usize>,
    /// UDP source ports per address, up to 64, over which flows spread. Default 16; none on
    /// loopback, which has one path. 0 or 1: all data leaves from port 4791.
    pub source_ports: Option<usize>,
    /// Most datagrams per run, by default the kernel's limit. 1: for adapters whose segmentation
    /// numbers IPv4 identifications unlike Linux, which the peer counts as `bad_icrc`.
    pub segments: Option<usize>,
    /// Set for the service that receives for all users' programs.
    pub receives_for_users: bool,
}

impl SocketOptions {
    fn wanted(&self) -> usize {
        // The kernel clamps an int.
        self.receive_buffer.unwrap_or(BUFFER).min(i32::MAX as usize)
    }

    /// A smaller grant only reduces data in flight.
    pub(in crate::link) fn set_receive_buffer(&self, socket: &Socket) {
        SO_RCVBUF.ask(socket.set_recv_buffer_size(self.wanted()));
    }

    pub(in crate::link) fn set_send_buffer(socket: &Socket) {
        SO_SNDBUF.ask(socket.set_send_buffer_size(BUFFER));
    }

    pub(super) fn source_ports(&self, address: IpAddr) -> usize {
        let by_default = if address.is_loopback() { 0 } else { SOURCE_PORTS };
        match self.source_ports.unwrap_or(by_default) {
            0 | 1 => 0,
            count => count.min(MAX_SOURCE_PORTS),
        }
    }

    /// Receive buffer that the system grants now, in bytes.
    ///
    /// # Errors
    /// If no socket can be created.
    pub fn granted_receive_buffer(&self) -> io::Result<usize> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        self.set_receive_buffer(&socket);
        socket.recv_buffer_size()
    }

    /// Advice about a granted receive buffer, unless large enough or as small as requested.
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
