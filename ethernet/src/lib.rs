//! Link layer of an adapter with its own MAC address. A [`Station`] is a function of frames and
//! time.
//!
//! Sources: RFC 826 (ARP), RFC 4861 (neighbour discovery), RFC 5227 and RFC 4862 section 5.4
//! (duplicate addresses), RFC 3376 and RFC 3810 (multicast), RFC 2131 (DHCP), IEEE 802.1Q (VLANs,
//! PFC).

mod address;
mod build;
mod counters;
mod dhcp;
mod flow;
mod frame;
mod groups;
mod neighbors;
mod pauses;
mod station;
#[cfg(test)]
mod tests;

pub use address::Prefix;
pub use counters::FrameCounters;
pub use dhcp::{Lease, LeaseError, Route};
pub use flow::{
    Copies, EthFilter, FlowAttr, FlowId, FlowKind, FlowSpec, FlowSpecError, FlowTable, Ipv4Filter,
    Ipv6Filter, Membership, PortFilter,
};
pub use frame::{Frame, IpPacket, Packet, Vlan};
pub use neighbors::Hop;
pub use pnet_datalink::MacAddr;
pub use station::{
    Assignment, PAUSE_GROUP, Received, Station, StationConfig, StationEvent, group_mac, memberships,
};
