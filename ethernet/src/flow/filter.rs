use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethernet fields (`ibv_flow_eth_filter`), in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EthFilter {
    /// Destination MAC address.
    pub dst: [u8; 6],
    /// Source MAC address.
    pub src: [u8; 6],
    /// Ethertype behind VLAN tags.
    pub ether_type: u16,
    /// First VLAN tag: priority and ID. A zero mask also matches untagged frames.
    pub vlan_tag: u16,
}

/// IPv4 fields (`ibv_flow_ipv4_filter`, `ibv_flow_ipv4_ext_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Filter {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Payload protocol.
    pub protocol: u8,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
}

impl Default for Ipv4Filter {
    /// Zero, a mask that everything matches.
    fn default() -> Self {
        let any = Ipv4Addr::UNSPECIFIED;
        Self { src: any, dst: any, protocol: 0, tos: 0, ttl: 0 }
    }
}

/// IPv6 fields (`ibv_flow_ipv6_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Filter {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Next header.
    pub next_header: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Default for Ipv6Filter {
    /// Zero, a mask that everything matches.
    fn default() -> Self {
        let any = Ipv6Addr::UNSPECIFIED;
        Self { src: any, dst: any, flow_label: 0, next_header: 0, traffic_class: 0, hop_limit: 0 }
    }
}

/// TCP or UDP ports (`ibv_flow_tcp_udp_filter`), in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortFilter {
    /// Destination port.
    pub dst: u16,
    /// Source port.
    pub src: u16,
}
