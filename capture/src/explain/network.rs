use std::{fmt, net::IpAddr};

use roce_transport::wire::NetHeader;

/// Address of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// RoCE.
    Ip(IpAddr),
    /// InfiniBand LID of a port or multicast group.
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
            // multicast LIDs read better in hexadecimal
            Self::Lid(lid @ 0xC000..) => write!(f, "LID {lid:#x}"),
            Self::Lid(lid) => write!(f, "LID {lid}"),
        }
    }
}

/// Network headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "a network's comment describes its fields")]
pub enum Network {
    /// RoCE v1 or v2.
    Roce(NetHeader),
    /// InfiniBand: LIDs of sender and receiver, of the LRH.
    InfiniBand { src: u16, dst: u16 },
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
