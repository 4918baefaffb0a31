//! Where a packet is from and to: IP addresses, or the local identifiers of an InfiniBand subnet.

use std::{fmt, net::IpAddr};

use roce_transport::wire::NetHeader;

/// An address of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// Of RoCE.
    Ip(IpAddr),
    /// Of InfiniBand: the port's LID, or that of a multicast group.
    Lid(u16),
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            // those of multicast groups are rather bits than numbers
            Self::Lid(lid @ 0xC000..) => write!(f, "LID {lid:#x}"),
            Self::Lid(lid) => write!(f, "LID {lid}"),
        }
    }
}

/// Headers before the transport's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// RoCE, of either version.
    Roce(NetHeader),
    /// InfiniBand: the addresses of the local route header.
    InfiniBand {
        /// Sender's LID.
        src: u16,
        /// Receiver's LID.
        dst: u16,
    },
}

impl Network {
    /// Sender's address.
    #[must_use]
    pub const fn src(&self) -> Address {
        match self {
            Self::Roce(net) => Address::Ip(net.src),
            Self::InfiniBand { src, .. } => Address::Lid(*src),
        }
    }

    /// Receiver's address.
    #[must_use]
    pub const fn dst(&self) -> Address {
        match self {
            Self::Roce(net) => Address::Ip(net.dst),
            Self::InfiniBand { dst, .. } => Address::Lid(*dst),
        }
    }
}
