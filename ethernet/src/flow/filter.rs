//! Fields of frames that flows look at, as values and as masks.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Fields of Ethernet (`ibv_flow_eth_filter`), in the host's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EthFilter {
    /// Receiver's MAC address.
    pub dst: [u8; 6],
    /// Sender's MAC address.
    pub src: [u8; 6],
    /// Type of the payload, behind VLAN tags.
    pub ether_type: u16,
    /// The first VLAN tag: priority and ID. With a mask of 0, frames without a tag match, too.
    pub vlan_tag: u16,
}

/// Fields of IPv4 (`ibv_flow_ipv4_filter`, `ibv_flow_ipv4_ext_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Filter {
    /// Sender.
    pub src: Ipv4Addr,
    /// Receiver.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
}

impl Ipv4Filter {
    /// All zero: as a mask, one that everything matches.
    pub const ZERO: Self = Self {
        src: Ipv4Addr::UNSPECIFIED,
        dst: Ipv4Addr::UNSPECIFIED,
        protocol: 0,
        tos: 0,
        ttl: 0,
    };
}

impl Default for Ipv4Filter {
    fn default() -> Self {
        Self::ZERO
    }
}

/// Fields of IPv6 (`ibv_flow_ipv6_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Filter {
    /// Sender.
    pub src: Ipv6Addr,
    /// Receiver.
    pub dst: Ipv6Addr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Type of the next header.
    pub next_header: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Ipv6Filter {
    /// All zero: as a mask, one that everything matches.
    pub const ZERO: Self = Self {
        src: Ipv6Addr::UNSPECIFIED,
        dst: Ipv6Addr::UNSPECIFIED,
        flow_label: 0,
        next_header: 0,
        traffic_class: 0,
        hop_limit: 0,
    };
}

impl Default for Ipv6Filter {
    fn default() -> Self {
        Self::ZERO
    }
}

/// Ports of TCP or UDP (`ibv_flow_tcp_udp_filter`), in the host's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortFilter {
    /// Receiver's port.
    pub dst: u16,
    /// Sender's port.
    pub src: u16,
}
