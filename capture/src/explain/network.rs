use std::net::IpAddr;

use derive_more::Display;
use roce_transport::wire::NetHeader;

/// Address of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
pub enum Address {
    /// RoCE.
    Ip(IpAddr),
    /// InfiniBand LID of a port or multicast group.
    #[display("LID {}", lid(*_0))]
    Lid(u16),
}

/// LIDs of multicast groups read better in hexadecimal.
fn lid(lid: u16) -> String {
    if lid < 0xC000 { lid.to_string() } else { format!("{lid:#x}") }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address)
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
