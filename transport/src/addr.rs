//! Addresses, partition and queue keys, and paths.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use crate::ids::Qpn;

/// UDP destination port of RoCEv2.
pub const ROCE_UDP_PORT: u16 = 4791;

/// IPv6 address, or IPv4 address mapped as `::ffff:a.b.c.d`.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    derive_more::Debug,
    derive_more::Display,
)]
#[debug("Gid({self})")]
#[display("{}", self.to_ipv6())]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// IP address, unmapped for IPv4.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        IpAddr::V6(self.to_ipv6()).to_canonical()
    }

    /// IPv6 address, mapped for IPv4.
    #[must_use]
    pub fn to_ipv6(self) -> Ipv6Addr {
        self.0.into()
    }

    /// True for IPv6 and mapped IPv4 groups.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// True for an unused GID table entry.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        IpAddr::V4(address).into()
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        IpAddr::V6(address).into()
    }
}

/// Partition key: 15 bits, and one bit of full membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PKey(pub u16);

impl PKey {
    /// Full membership of the default partition.
    pub const DEFAULT: Self = Self(0xFFFF);

    /// False for partition 0, which does not exist (10.9.1.1).
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & 0x7FFF != 0
    }

    /// True for keys of one partition, one with full membership (C9-44).
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        self.is_valid() && self.0 & 0x7FFF == other.0 & 0x7FFF && (self.0 | other.0) & 0x8000 != 0
    }
}

impl Default for PKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Queue key of UD packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QKey(pub u32);

impl QKey {
    /// Q_Key of QP1 (C10-130).
    pub const GSI: Self = Self(0x8001_0000);

    /// True if a work request with this key uses the queue pair's key (high bit, C10-15).
    #[must_use]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// Path MTU: maximum payload of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1,024 bytes.
    B1024 = 3,
    /// 2,048 bytes.
    B2048 = 4,
    /// 4,096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All, ascending.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// MTU of exactly `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&mtu| mtu as u8 == code)
    }

    /// Largest MTU for a link with 80 bytes of headers, as in rxe.
    #[must_use]
    pub fn fitting(link_mtu: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() + 80 <= link_mtu)
    }

    /// Packets of a message, at least 1.
    #[must_use]
    pub const fn packets(self, length: u32) -> u32 {
        if length == 0 { 1 } else { length.div_ceil(self.bytes()) }
    }
}

/// RoCE version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RoceVersion {
    /// Ethertype 0x8915 with a GRH (annex A16).
    V1,
    /// UDP (annex A17).
    #[default]
    V2,
}

/// Path of an address handle or connected queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressVector {
    /// Peer's GID.
    pub dgid: Gid,
    /// Index of the local GID.
    pub sgid_index: u16,
    /// Service level, 0 to 15; the lower three bits are the VLAN priority.
    pub service_level: u8,
    /// Flow label, 20 bits; selects the UDP source port.
    pub flow_label: u32,
    /// IPv4 TOS or IPv6 traffic class, with ECN bits.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit; 0: 64.
    pub hop_limit: u8,
    /// Maximum rate, not enforced: the transport has no clock.
    pub static_rate: StaticRate,
}

impl AddressVector {
    /// Path to `dgid` with default values.
    #[must_use]
    pub const fn new(dgid: Gid, sgid_index: u16) -> Self {
        Self {
            dgid,
            sgid_index,
            service_level: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            static_rate: StaticRate::Unlimited,
        }
    }
}

macro_rules! static_rates {
    ($($variant:ident = $code:literal $doc:literal;)*) => {
        /// Static rate, in codes of `ibv_rate` and CM messages.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        #[repr(u8)]
        pub enum StaticRate { #[default] $(#[doc = $doc] $variant = $code,)* }

        impl StaticRate {
            /// Every rate.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

static_rates! {
    Unlimited = 0 "Port rate.";
    Gbps2_5 = 2 "2.5 Gb/s.";
    Gbps5 = 5 "5 Gb/s.";
    Gbps10 = 3 "10 Gb/s.";
    Gbps14 = 11 "14 Gb/s.";
    Gbps20 = 6 "20 Gb/s.";
    Gbps25 = 15 "25 Gb/s.";
    Gbps28 = 19 "28 Gb/s.";
    Gbps30 = 4 "30 Gb/s.";
    Gbps40 = 7 "40 Gb/s.";
    Gbps50 = 20 "50 Gb/s.";
    Gbps56 = 12 "56 Gb/s.";
    Gbps60 = 8 "60 Gb/s.";
    Gbps80 = 9 "80 Gb/s.";
    Gbps100 = 16 "100 Gb/s.";
    Gbps112 = 13 "112 Gb/s.";
    Gbps120 = 10 "120 Gb/s.";
    Gbps168 = 14 "168 Gb/s.";
    Gbps200 = 17 "200 Gb/s.";
    Gbps300 = 18 "300 Gb/s.";
    Gbps400 = 21 "400 Gb/s.";
    Gbps600 = 22 "600 Gb/s.";
    Gbps800 = 23 "800 Gb/s.";
    Gbps1200 = 24 "1,200 Gb/s.";
}

impl StaticRate {
    /// Rate with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|rate| *rate as u8 == code)
    }
}

/// UDP source port of a flow, 0xC000 to 0xFFFF: from the flow label or, if 0, symmetrically from
/// both QPNs. A link with few ports takes the remainder.
#[must_use]
pub fn udp_source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let label = if flow_label & 0xF_FFFF == 0 {
        let mut v = u64::from(local.get()) * u64::from(remote.get());
        v ^= v >> 20;
        v ^= v >> 40;
        (v & 0xF_FFFF) as u32
    } else {
        flow_label & 0xF_FFFF
    };
    ((label & 0x3FFF) ^ (label >> 14)) as u16 | 0xC000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_map_addresses_both_ways() {
        let v4: IpAddr = "10.77.0.1".parse().unwrap();
        assert_eq!(Gid::from(v4).0[10..], [0xFF, 0xFF, 10, 77, 0, 1]);
        assert_eq!(Gid::from(v4).to_ip(), v4);
        let v6: IpAddr = "fd77::1".parse().unwrap();
        assert_eq!(Gid::from(v6).to_ip(), v6);
    }

    #[test]
    fn partition_membership() {
        assert!(PKey(0xFFFF).matches(PKey(0x7FFF)));
        assert!(PKey(0xFFFF).matches(PKey(0xFFFF)));
        assert!(!PKey(0x7FFF).matches(PKey(0x7FFF)));
        assert!(!PKey(0xFFFF).matches(PKey(0x8001)));
        assert!(!PKey(0x8000).matches(PKey(0x8000)), "there is no partition 0");
    }

    #[test]
    fn mtus() {
        assert_eq!(Mtu::fitting(1500), Some(Mtu::B1024));
        assert_eq!(Mtu::fitting(4200), Some(Mtu::B4096));
        assert_eq!(Mtu::fitting(65536), Some(Mtu::B4096));
        assert_eq!(Mtu::fitting(300), None);
        assert_eq!(Mtu::B1024.packets(0), 1);
        assert_eq!(Mtu::B1024.packets(1024), 1);
        assert_eq!(Mtu::B1024.packets(1025), 2);
    }

    #[test]
    fn static_rates_have_the_codes_of_the_c_api() {
        let known: std::vec::Vec<u8> =
            (0..=u8::MAX).filter(|&code| StaticRate::from_code(code).is_some()).collect();
        assert_eq!(known, [0].into_iter().chain(2..=24).collect::<std::vec::Vec<u8>>());
        assert_eq!(StaticRate::from_code(16), Some(StaticRate::Gbps100));
        assert_eq!(StaticRate::default(), StaticRate::Unlimited);
    }

    #[test]
    fn groups() {
        for (address, is_group) in
            [("239.1.2.3", true), ("ff15::1", true), ("10.0.0.1", false), ("fd77::1", false)]
        {
            assert_eq!(
                Gid::from(address.parse::<IpAddr>().unwrap()).is_multicast(),
                is_group,
                "{address}"
            );
        }
    }

    #[test]
    fn source_ports_match_the_kernel() {
        assert_eq!(udp_source_port(0, Qpn::new(0x11), Qpn::new(0x11)), 49441);
        assert_eq!(udp_source_port(0, Qpn::new(0x11), Qpn::new(0x118)), 53912);
        assert_eq!(udp_source_port(0x56667, Qpn::new(1), Qpn::new(2)), 58994);
    }
}
