//! Name resolution.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
};

use roce_transport::{cm::PortSpace, qp::QpType};

use super::queues::default_qp_type;

/// Hints of `rdma_getaddrinfo`.
#[derive(Clone, Debug, Default)]
pub struct AddrInfoHints {
    /// True to listen, false to connect (`RAI_PASSIVE`).
    pub passive: bool,
    /// Port space; by default [`PortSpace::Tcp`], or [`PortSpace::Udp`] for UD.
    pub port_space: Option<PortSpace>,
    /// Queue pair type; by default the port space's.
    pub qp_type: Option<QpType>,
    /// Local address of the active side.
    pub src: Option<SocketAddr>,
    /// Refuses names (`RAI_NUMERICHOST`).
    pub numeric_host: bool,
}

/// Address and its use (`rdma_addrinfo`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddrInfo {
    /// True to listen on `src`, false to connect to `dst`.
    pub passive: bool,
    /// Port space.
    pub port_space: PortSpace,
    /// Queue pair type.
    pub qp_type: QpType,
    /// Local address; set for the passive side.
    pub src: Option<SocketAddr>,
    /// Peer's address; set for the active side.
    pub dst: Option<SocketAddr>,
}

/// Resolves a host name and port (`rdma_getaddrinfo`), by default wildcards (passive) or loopback
/// (active).
///
/// # Errors
/// System error for an unknown name; [`InvalidInput`](io::ErrorKind::InvalidInput) for an invalid
/// `service`.
pub fn getaddrinfo(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddrInfoHints,
) -> io::Result<Vec<AddrInfo>> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let port: u16 = match service {
        Some(service) => service
            .parse()
            .map_err(|_| bad(&format!("{service} is not a port number; expected 0 to 65535")))?,
        None => 0,
    };
    let addresses: Vec<SocketAddr> = match node {
        Some(node) => match node.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) if hints.numeric_host => {
                return Err(bad(&format!("{node} is not an IP address")));
            }
            Err(_) => (node, port).to_socket_addrs()?.collect(),
        },
        None if hints.passive => {
            vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()]
        }
        None => vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()],
    };
    let port_space = hints.port_space.unwrap_or(match hints.qp_type {
        Some(QpType::Ud) => PortSpace::Udp,
        Some(QpType::Uc | QpType::XrcInitiator | QpType::XrcTarget) => PortSpace::Ib,
        Some(QpType::Rc | QpType::RawPacket) | None => PortSpace::Tcp,
    });
    let qp_type = hints.qp_type.unwrap_or_else(|| default_qp_type(port_space));
    let info = |address: SocketAddr| AddrInfo {
        passive: hints.passive,
        port_space,
        qp_type,
        src: if hints.passive {
            Some(address)
        } else {
            hints.src.filter(|src| src.is_ipv4() == address.is_ipv4())
        },
        dst: (!hints.passive).then_some(address),
    };
    Ok(addresses.into_iter().map(info).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_nothing() {
        let hints = AddrInfoHints::default();
        let found = getaddrinfo(Some("127.0.0.1"), Some("7471"), &hints).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].dst, found[0].src), (Some("127.0.0.1:7471".parse().unwrap()), None));
        assert_eq!((found[0].port_space, found[0].qp_type), (PortSpace::Tcp, QpType::Rc));
        let passive = AddrInfoHints { passive: true, qp_type: Some(QpType::Ud), ..hints.clone() };
        let found = getaddrinfo(None, None, &passive).unwrap();
        assert_eq!(found[0].src, Some("0.0.0.0:0".parse().unwrap()));
        assert_eq!((found[0].dst, found[0].port_space), (None, PortSpace::Udp));
        assert_eq!(
            getaddrinfo(Some("::1"), Some("1"), &hints).unwrap()[0].dst,
            Some("[::1]:1".parse().unwrap())
        );
        assert!(getaddrinfo(None, Some("http"), &hints).is_err());
        assert!(
            getaddrinfo(
                Some("localhost"),
                None,
                &AddrInfoHints { numeric_host: true, ..hints.clone() }
            )
            .is_err()
        );
        assert!(!getaddrinfo(Some("localhost"), Some("5"), &hints).unwrap().is_empty());
    }
}
