//! Service IDs, and IP addresses in a REQ (annex A11).

use core::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// Service ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, derive_more::Debug)]
#[debug("ServiceId({_0:#018x})")]
pub struct ServiceId(pub u64);

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PortSpace::of(*self) {
            Some((space, port)) => write!(f, "{space:?} port {port}"),
            None => write!(f, "service {:#018x}", self.0),
        }
    }
}

/// RDMA port space (`rdma_port_space`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand datagrams (`RDMA_PS_IPOIB`).
    Ipoib = 0x0002,
    /// Reliable connections (`RDMA_PS_TCP`).
    Tcp = 0x0106,
    /// Datagrams (`RDMA_PS_UDP`).
    Udp = 0x0111,
    /// Any service (`RDMA_PS_IB`).
    Ib = 0x013F,
}

impl PortSpace {
    /// Every port space.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];

    /// Service ID of a port.
    #[must_use]
    pub const fn service(self, port: u16) -> ServiceId {
        ServiceId((self as u64) << 16 | port as u64)
    }

    /// Port space and port of a service ID.
    #[must_use]
    pub fn of(service: ServiceId) -> Option<(Self, u16)> {
        let space = Self::ALL.into_iter().find(|space| *space as u64 == service.0 >> 16)?;
        Some((space, service.0 as u16))
    }
}

/// IP addresses and port of a REQ, 36 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpHeader {
    /// Requester's port.
    pub src_port: u16,
    /// Requester's address, of `dst`'s family.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
}

impl IpHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// Parses the header; `None` for other versions.
    #[must_use]
    pub fn parse(b: &[u8; Self::LEN]) -> Option<Self> {
        let v6 = |at: usize| Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| b[at + i]));
        let v4 = |at: usize| IpAddr::from(core::array::from_fn::<u8, 4, _>(|i| b[at + 12 + i]));
        let (src, dst) = match (b[0], b[1] >> 4) {
            (0, 4) => (v4(4), v4(20)),
            (0, 6) => (v6(4).into(), v6(20).into()),
            _ => return None,
        };
        Some(Self { src_port: u16::from_be_bytes([b[2], b[3]]), src, dst })
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[1] = if self.src.is_ipv4() { 0x40 } else { 0x60 };
        b[2..4].copy_from_slice(&self.src_port.to_be_bytes());
        let mut put = |at: usize, address: IpAddr| match address {
            IpAddr::V4(v4) => b[at + 12..at + 16].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => b[at..at + 16].copy_from_slice(&v6.octets()),
        };
        put(4, self.src);
        put(20, self.dst);
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_numbered_as_the_kernel_does() {
        assert_eq!(PortSpace::Tcp.service(7471), ServiceId(0x0106_1D2F));
        assert_eq!(PortSpace::of(ServiceId(0x0111_0001)), Some((PortSpace::Udp, 1)));
        assert_eq!(PortSpace::of(ServiceId(0x1_0111_0001)), None);
    }

    #[test]
    fn headers_come_back() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let header =
                IpHeader { src_port: 45000, src: src.parse().unwrap(), dst: dst.parse().unwrap() };
            assert_eq!(IpHeader::parse(&header.encode()), Some(header));
        }
        let mut bytes = [0; IpHeader::LEN];
        assert_eq!(IpHeader::parse(&bytes), None);
        bytes[..2].copy_from_slice(&[1, 0x40]);
        assert_eq!(IpHeader::parse(&bytes), None);
    }
}
