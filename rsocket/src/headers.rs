//! Datagram headers: in UDP, to exchange queue pair numbers, and between queue pairs. Source:
//! "rsocket Protocol and Design Guide" (rdma-core, librdmacm/docs/rsocket).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use roce_transport::addr::Qpn;

const TAG: u32 = 0x5555_5555;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

pub(super) const LONGEST: usize = 28;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Data = 0,
    /// Response to data.
    Control = 7,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DatagramHeader {
    pub(super) purpose: Purpose,
    /// The sender's queue pair; `None` (0 on the wire): none.
    pub(super) qpn: Option<Qpn>,
    pub(super) to: IpAddr,
}

impl DatagramHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (version, length) = match self.to {
            IpAddr::V4(_) => (IPV4, 16),
            IpAddr::V6(_) => (IPV6, 28),
        };
        let qpn = self.qpn.map_or(0, Qpn::get) << 8;
        let mut bytes = TAG.to_be_bytes().to_vec();
        bytes.extend([version, self.purpose as u8, length, 0]);
        bytes.extend(qpn.to_be_bytes());
        match self.to {
            IpAddr::V4(to) => bytes.extend(to.octets()),
            IpAddr::V6(to) => bytes.extend(to.octets()),
        }
        bytes
    }

    /// `None` if not of an rsocket.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<12>()?;
        let [t0, t1, t2, t3, version, op, length, _, q0, q1, q2, _] = *head;
        let (to, data) = address(version, length.checked_sub(12)?, rest)?;
        let purpose = match op {
            0 => Purpose::Data,
            7 => Purpose::Control,
            _ => return None,
        };
        let qpn = u32::from_be_bytes([0, q0, q1, q2]);
        let qpn = (qpn != 0).then(|| Qpn::new(qpn));
        (u32::from_be_bytes([t0, t1, t2, t3]) == TAG).then_some((Self { purpose, qpn, to }, data))
    }
}

/// Header between queue pairs: the sender's address and port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sender(pub(super) SocketAddr);

impl Sender {
    pub(super) const fn len(of: IpAddr) -> usize {
        match of {
            IpAddr::V4(_) => 8,
            IpAddr::V6(_) => 24,
        }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let version = if self.0.is_ipv4() { IPV4 } else { IPV6 };
        let mut bytes = vec![version, Self::len(self.0.ip()) as u8];
        bytes.extend(self.0.port().to_be_bytes());
        match self.0 {
            SocketAddr::V4(from) => bytes.extend(from.ip().octets()),
            SocketAddr::V6(from) => {
                bytes.extend(from.flowinfo().to_be_bytes());
                bytes.extend(from.ip().octets());
            }
        }
        bytes
    }

    /// `None` if not of an rsocket.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (&[version, length, p0, p1], rest) = bytes.split_first_chunk::<4>()?;
        let flow_label = if version == IPV6 { 4 } else { 0 };
        let rest = rest.get(flow_label..)?;
        let (ip, _) = address(version, length.checked_sub(4 + flow_label as u8)?, rest)?;
        let from = SocketAddr::new(ip, u16::from_be_bytes([p0, p1]));
        Some((Self(from), length.into()))
    }
}

fn address(version: u8, length: u8, bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    match (version, length) {
        (IPV4, 4) => {
            let (octets, rest) = bytes.split_first_chunk::<4>()?;
            Some((Ipv4Addr::from(*octets).into(), rest))
        }
        (IPV6, 16) => {
            let (octets, rest) = bytes.split_first_chunk::<16>()?;
            Some((Ipv6Addr::from(*octets).into(), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_as_the_guide_has_them() {
        let header = DatagramHeader {
            purpose: Purpose::Data,
            qpn: Some(Qpn::new(0x12_3456)),
            to: Ipv4Addr::new(10, 1, 2, 3).into(),
        };
        let wire = [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0x12, 0x34, 0x56, 0, 10, 1, 2, 3];
        assert_eq!(header.encode(), wire);
        assert_eq!(
            DatagramHeader::parse(&[&wire[..], b"data"].concat()),
            Some((header, &b"data"[..]))
        );

        let to = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 9);
        let header = DatagramHeader { purpose: Purpose::Control, qpn: None, to: to.into() };
        let wire = header.encode();
        assert_eq!((wire.len(), wire[4], wire[5], wire[6]), (LONGEST, 6, 7, 28));
        assert_eq!(DatagramHeader::parse(&wire), Some((header, &[][..])));

        let from = Sender("10.1.2.3:7174".parse().unwrap());
        let wire = [4, 8, 0x1c, 0x06, 10, 1, 2, 3];
        assert_eq!(from.encode(), wire);
        assert_eq!(Sender::parse(&[&wire[..], b"data"].concat()), Some((from, 8)));
        let from = Sender("[fd77::9]:1".parse().unwrap());
        let wire = from.encode();
        assert_eq!((wire.len(), &wire[..8]), (24, &[6, 24, 0, 1, 0, 0, 0, 0][..]));
        assert_eq!(Sender::parse(&wire), Some((from, 24)));
    }

    #[test]
    fn nothing_else_is_one() {
        let to = Ipv4Addr::LOCALHOST.into();
        let good = DatagramHeader { purpose: Purpose::Data, qpn: None, to }.encode();
        for (at, byte) in [(0, 0x54), (4, 5), (4, 6), (5, 1), (6, 15), (6, 28), (6, 0)] {
            let mut wire = good.clone();
            wire[at] = byte;
            assert_eq!(DatagramHeader::parse(&wire), None, "{at}");
        }
        assert_eq!(DatagramHeader::parse(&good[..15]), None);
        let good = Sender("10.1.2.3:7174".parse().unwrap()).encode();
        for (at, byte) in [(0, 5), (0, 6), (1, 7), (1, 0), (1, 24)] {
            let mut wire = good.clone();
            wire[at] = byte;
            assert_eq!(Sender::parse(&wire), None, "{at}");
        }
        assert_eq!(Sender::parse(&good[..7]), None);
        assert_eq!(Sender::parse(&[]), None);
    }
}
