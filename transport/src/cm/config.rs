//! Settings of connection management.

use core::{ops::RangeInclusive, time::Duration};

use crate::time::timeout;

/// Longest time wait: 4.3 s (code 20), from the REQ's acknowledge timeout; Linux names 17 to 19.
pub(super) const MAX_TIME_WAIT: Duration = timeout(20);

/// Longest target ACK delay granted to a peer: code 20 (4.3 s). Adapters name 15 or 16.
pub(super) const MAX_ACK_DELAY: u8 = 20;

/// Longest service timeout granted to an MRA: code 24 (69 s), Linux's own.
pub(super) const MAX_SERVICE_TIMEOUT: u8 = 24;

/// Settings of connection management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Range of communication IDs, without 0; all by default. Adapters that share an address need
    /// separate ranges.
    pub ids: RangeInclusive<u32>,
    /// Time until a message is retransmitted: 4.096 µs · 2^code, 18 (1.07 s) by default.
    pub response_timeout: u8,
    /// Retransmissions of a message, 0 to 15; 15 by default.
    pub max_retries: u8,
    /// Most messages for one REQ before its source address is proven, the REP and the last DREQ
    /// included: 2 or more, 3 by default. The source may be forged; lossy networks may need more
    /// for a lost RTU.
    pub unproven_messages: u8,
    /// Service timeout of the MRA for a REQ that the program has not decided; code 24 (69 s) by
    /// default.
    pub service_timeout: u8,
    /// Time for retrying a REQ every 10 ms while the peer has no listener, zero by default. For
    /// programs that start both sides at once and rely on slow address resolution.
    pub listen_grace: Duration,
    /// Most connections and resolutions, at most a quarter of the IDs; 65,536 by default. As many
    /// more may be in time wait; beyond that, the oldest ends early.
    pub max_connections: usize,
    /// Most of them requested by one address; 16,384 by default. Further REQs are dropped.
    pub max_per_peer: usize,
    /// [`poll_record`] reports changed records, for an owner that stores them outside the adapter
    /// and must drain it. False by default.
    ///
    /// [`poll_record`]: super::Connections::poll_record
    pub tells_records: bool,
}

impl Default for CmConfig {
    fn default() -> Self {
        Self {
            ids: 1..=u32::MAX,
            response_timeout: 18,
            max_retries: 15,
            unproven_messages: 3,
            service_timeout: 24,
            listen_grace: Duration::ZERO,
            max_connections: 1 << 16,
            max_per_peer: 1 << 14,
            tells_records: false,
        }
    }
}
