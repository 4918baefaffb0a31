//! Source ports that spread data over all paths of a network.
//!
//! Routers hash addresses and ports (ECMP), and RoCEv2 has one destination port. Each flow sends
//! from one of a few sockets, which receive nothing: peers send to port 4791.

use std::{io, net::IpAddr, os::fd::AsRawFd};

use roce_transport::addr::ROCE_UDP_PORT;
use rustix::process::{Resource, getrlimit};
use socket2::{SockFilter, Socket};

use super::{message, options::SocketOptions};
use crate::bind::BindError;

/// First port above Linux's ephemeral range (32768 to 60999), within RoCEv2's recommended range
/// (0xC000 and up).
const FIRST: u16 = 61_000;
const COUNT: u16 = u16::MAX - FIRST + 1;
/// Ports tried before settling for fewer.
const TRIES: usize = 1024;

pub(super) struct FlowSocket {
    pub(super) port: u16,
    pub(super) socket: Socket,
}

/// Opens up to `count` sockets, fewer without descriptors or ports. Without any, all data leaves
/// from port 4791.
pub(super) fn open(address: IpAddr, interface: u32, count: usize) -> Vec<FlowSocket> {
    // Processes that share an address start at different ports.
    let begin = std::process::id().wrapping_mul(64);
    let mut candidates = (0..COUNT.into())
        .map(|index: u32| FIRST + (begin.wrapping_add(index) % u32::from(COUNT)) as u16)
        .take(TRIES);
    let mut flows = Vec::new();
    while flows.len() < count {
        let Ok(socket) = unbound(address, interface) else { break };
        let bound = candidates.find(|&port| {
            socket.bind(&message::socket_address(address, interface, port).into()).is_ok()
        });
        let Some(port) = bound else { break };
        flows.push(FlowSocket { port, socket });
    }
    flows
}

/// Opens a socket that holds an address's port and receives nothing.
pub(in crate::link) fn guard(address: IpAddr, interface: u32) -> Result<Socket, BindError> {
    let socket_address = message::socket_address(address, interface, ROCE_UDP_PORT);
    unbound(address, interface)
        .and_then(|socket| socket.bind(&socket_address.into()).map(|()| socket))
        .map_err(|source| BindError::of_socket(address, source))
}

fn unbound(address: IpAddr, interface: u32) -> io::Result<Socket> {
    let socket = message::new_socket(address)?;
    // Half of the descriptors stay for the program.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if u64::from(socket.as_raw_fd().unsigned_abs()) >= limit / 2 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    // Stray packets cost no memory.
    message::SO_ATTACH_FILTER.ask(socket.attach_filter(&[SockFilter::new(DROP, 0, 0, 0)]));
    let _ = socket.set_recv_buffer_size(0);
    SocketOptions::set_send_buffer(&socket);
    message::configure_sending(&socket, address.is_ipv6())?;
    message::configure_multicast(&socket, address, interface);
    Ok(socket)
}

/// Returns a constant; 0 drops the packet.
const DROP: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::UdpSocket};

    use super::*;
    use crate::own_test;

    #[test]
    fn every_socket_has_a_port_of_its_own_and_hears_nothing() {
        for address in ["127.79.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let (flows, others) = (open(address, 0, 16), open(address, 0, 16));
            let ports: BTreeSet<u16> = flows.iter().chain(&others).map(|flow| flow.port).collect();
            assert_eq!(ports.len(), 32, "those that others have bound are passed over");
            assert!(ports.iter().all(|&port| port >= 0xC000));
            let peer = UdpSocket::bind((address, 0)).unwrap();
            for flow in &flows {
                let to = peer.local_addr().unwrap();
                flow.socket.send_to(&[1], &to.into()).unwrap();
                let (_, from) = peer.recv_from(&mut [0]).unwrap();
                assert_eq!((from.ip(), from.port()), (address, flow.port));
                peer.send_to(&[2], from).unwrap();
                let info = super::super::receive::Overflow::waiting(&flow.socket);
                assert_eq!(info, Some(0), "dropped before it was queued");
            }
        }
    }

    /// A child process: the limit is per process.
    #[test]
    fn half_of_the_descriptors_are_left_alone() {
        const INSIDE: &str = "ROCE_TEST_FEW_DESCRIPTORS";
        let name = "link::udp::flows::tests::half_of_the_descriptors_are_left_alone";
        if std::env::var_os(INSIDE).is_none() {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let status = command.args(["--exact", own_test::named(name)]).env(INSIDE, "1").status();
            assert!(status.unwrap().success());
            return;
        }
        let limit = getrlimit(Resource::Nofile);
        let few = rustix::process::Rlimit { current: Some(40), ..limit };
        rustix::process::setrlimit(Resource::Nofile, few).unwrap();
        let flows = open([127, 79, 0, 2].into(), 0, 64);
        assert!(!flows.is_empty() && flows.len() <= 20, "{} sockets", flows.len());
        assert!(flows.iter().all(|flow| flow.socket.as_raw_fd() < 20));
        assert!(
            open([127, 79, 0, 2].into(), 0, 64).is_empty(),
            "none is left, and that is no error"
        );
    }
}
