//! Addresses: queue pair numbers, GIDs, keys of partitions and of queues, and the path to a peer.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

pub use crate::ids::Qpn;

/// The UDP destination port of RoCEv2.
pub const ROCE_UDP_PORT: u16 = 4791;

/// A global identifier: 16 bytes. In RoCEv2 it is the IPv6 address, or the IPv4 address mapped as
/// `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that this GID stands for.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        IpAddr::V6(self.to_ipv6()).to_canonical()
    }

    /// The IPv6 address that this GID is: that of an IPv4 address is its mapped one.
    #[must_use]
    pub fn to_ipv6(self) -> Ipv6Addr {
        self.0.into()
    }

    /// True if it names a multicast group: an IPv6 multicast address, or an IPv4 one, mapped.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// True if all 16 bytes are zero: an unused entry of a GID table.
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

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// A partition key: 15 bits that name the partition and a bit for full membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PKey(pub u16);

impl PKey {
    /// Full membership of the default partition.
    pub const DEFAULT: Self = Self(0xFFFF);

    /// True if it names a partition: partition 0 does not exist (10.9.1.1).
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & 0x7FFF != 0
    }

    /// True if two holders may communicate: same partition, and at least one of them a full member
    /// (C9-44).
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

/// A queue key, which a UD packet must carry to be received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QKey(pub u32);

impl QKey {
    /// Q_Key of the general services interface, QP1 (C10-130).
    pub const GSI: Self = Self(0x8001_0000);

    /// True if a work request with this key means "use the queue pair's own key": the high bit is
    /// set (C10-15).
    #[must_use]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// A path MTU: the most payload that one packet carries.
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
    /// All of them, smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Payload bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// The one that has exactly this many bytes.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The greatest whose packets fit a link of `link_mtu` bytes with every header that may come
    /// with them: 80 bytes, as the kernel's rxe counts. `None` below 336 bytes.
    #[must_use]
    pub fn fitting(link_mtu: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() + 80 <= link_mtu)
    }

    /// Number of packets of a message of `length` bytes: at least one.
    #[must_use]
    pub const fn packets(self, length: u32) -> u32 {
        if length == 0 { 1 } else { length.div_ceil(self.bytes()) }
    }
}

/// Version of RoCE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RoceVersion {
    /// Frames of ethertype 0x8915, with a global route header in the place of IP and UDP (annex
    /// A16).
    V1,
    /// UDP datagrams (annex A17).
    #[default]
    V2,
}

/// The way to a peer, as an address handle or a connected queue pair holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressVector {
    /// The peer's GID.
    pub dgid: Gid,
    /// Index of the local GID in the device's table.
    pub sgid_index: u16,
    /// Service level, 0 to 15; on a VLAN the lower three bits are the priority in the tag, where
    /// the link builds its frames itself.
    pub service_level: u8,
    /// IPv6 flow label, 20 bits, where the link builds its frames itself; also picks the UDP source
    /// port where the link can choose one. 0: from the QPNs.
    pub flow_label: u32,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit; 0 means 64.
    pub hop_limit: u8,
    /// The highest rate of this path. Stored and returned by queries, not enforced: the transport
    /// has no clock to pace by.
    pub static_rate: StaticRate,
}

impl AddressVector {
    /// Path from the local GID at `sgid_index` to `dgid`, all else at its default.
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
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal;)*) => {
        /// A static rate (`ibv_rate`); the numbers are those of the C API and of the communication
        /// manager's messages.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        #[repr(u8)]
        pub enum StaticRate { #[default] $($(#[doc = $doc])* $variant = $code,)* }

        impl StaticRate {
            /// Every rate.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

static_rates! {
    /// As fast as the port can.
    Unlimited = 0;
    /// 2.5 Gb/s.
    Gbps2_5 = 2;
    /// 5 Gb/s.
    Gbps5 = 5;
    /// 10 Gb/s.
    Gbps10 = 3;
    /// 14 Gb/s.
    Gbps14 = 11;
    /// 20 Gb/s.
    Gbps20 = 6;
    /// 25 Gb/s.
    Gbps25 = 15;
    /// 28 Gb/s.
    Gbps28 = 19;
    /// 30 Gb/s.
    Gbps30 = 4;
    /// 40 Gb/s.
    Gbps40 = 7;
    /// 50 Gb/s.
    Gbps50 = 20;
    /// 56 Gb/s.
    Gbps56 = 12;
    /// 60 Gb/s.
    Gbps60 = 8;
    /// 80 Gb/s.
    Gbps80 = 9;
    /// 100 Gb/s.
    Gbps100 = 16;
    /// 112 Gb/s.
    Gbps112 = 13;
    /// 120 Gb/s.
    Gbps120 = 10;
    /// 168 Gb/s.
    Gbps168 = 14;
    /// 200 Gb/s.
    Gbps200 = 17;
    /// 300 Gb/s.
    Gbps300 = 18;
    /// 400 Gb/s.
    Gbps400 = 21;
    /// 600 Gb/s.
    Gbps600 = 22;
    /// 800 Gb/s.
    Gbps800 = 23;
    /// 1,200 Gb/s.
    Gbps1200 = 24;
}

impl StaticRate {
    /// The rate with this code; `None` for a code without one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|rate| *rate as u8 == code)
    }
}

/// The UDP source port of a flow: 0xC000..=0xFFFF, from the flow label, or from both QPNs when that
/// is zero. Symmetric in the QPNs. Peers must not rely on it; switches spread flows by it. A link
/// with a few ports has the one at its remainder.
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
