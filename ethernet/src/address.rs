use std::{net::IpAddr, time::Duration};

/// Probes before use, and their interval. RFC 5227 takes seconds and RFC 4862 1 s, but the opening
/// of a device waits here.
pub(super) const PROBES: u8 = 3;
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(300);

/// An address and its network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// Host address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
}

impl Prefix {
    /// True if `other` is in this network.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let differ = bits(self.address) ^ bits(other);
        self.address.is_ipv4() == other.is_ipv4()
            && differ.leading_zeros() >= u32::from(self.length)
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
