//! Settings of connection management.

use core::{ops::RangeInclusive, time::Duration};

use crate::time::timeout;

/// Longest time wait: 4.3 s (code 20); Linux's REQs cause 17 to 19.
pub(super) const MAX_TIME_WAIT: Duration = timeout(20);

/// Longest target ACK delay accepted: 4.3 s (code 20). Adapters name 15 or 16.
pub(super) const MAX_ACK_DELAY: u8 = 20;

/// Longest service timeout of an MRA: 69 s (code 24), Linux's own.
pub(super) const MAX_SERVICE_TIMEOUT: u8 = 24;

/// Settings of connection management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Range of communication IDs, all by default. Adapters that share an address need separate
    /// ranges.
    pub ids: RangeInclusive<u32>,
    /// Time until a message is retransmitted: 4.096 µs · 2^code, 18 (1.07 s) by default.
    pub response_timeout: u8,
    /// Retransmissions of a message, 0 to 15; 15 by default.
    pub max_retries: u8,
    /// Most messages for one REQ before its source is proven, REP and last DREQ included: 2 or
    /// more, 3 by default. The source may be forged; a lost RTU may need more.
    pub unproven_messages: u8,
    /// Service timeout of this side's MRAs; 69 s (code 24) by default.
    pub service_timeout: u8,
    /// Time for retrying a REQ every 10 ms without listener, zero by default. For programs that
    /// start both sides at once.
    pub listen_grace: Duration,
    /// Most connections and resolutions, at most a quarter of the IDs; 65,536 by default. As many
    /// more may be in time wait; beyond that, the one with the least time left ends.
    pub max_connections: usize,
    /// Most of them requested by one address; 16,384 by default.
    pub max_per_peer: usize,
    /// [`poll_record`] reports changed records, and the owner must drain it. Off by default.
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
