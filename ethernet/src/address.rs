//! An address of a host's own, and how often it asks before it uses one whether somebody has it.

use std::{net::IpAddr, time::Duration};

/// Questions whether somebody has an address, before it is used, and the time between them. RFC
/// 5227 takes seconds for that, RFC 4862 one question and a second; who opens a device waits for
/// it.
pub(super) const PROBES: u8 = 3;
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(300);

/// An address, and the network that it is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Number of its first bits that all addresses of the network have.
    pub length: u8,
}

impl Prefix {
    /// True if an address is of this network.
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
