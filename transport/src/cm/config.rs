use core::{ops::RangeInclusive, time::Duration};

use crate::time::timeout;

/// 4.3 s (code 20); Linux's REQs cause 17 to 19.
pub(super) const MAX_TIME_WAIT: Duration = timeout(20);

/// 4.3 s (code 20); adapters name 15 or 16.
pub(super) const MAX_ACK_DELAY: u8 = 20;

/// 69 s (code 24), Linux's value.
pub(super) const MAX_SERVICE_TIMEOUT: u8 = 24;

/// Settings of connection management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Communication IDs, all by default; disjoint among adapters of one address.
    pub ids: RangeInclusive<u32>,
    /// Retransmit timeout, code (4.096 µs · 2^code); default 18 (1.07 s).
    pub response_timeout: u8,
    /// Retransmissions per message, 0 to 15; default 15.
    pub max_retries: u8,
    /// Messages per REQ until its source is proven, with REP and last DREQ; at least 2, default 3.
    /// A lost RTU may need more.
    pub unproven_messages: u8,
    /// Service timeout in MRAs, code; default 24 (69 s).
    pub service_timeout: u8,
    /// Time to retry a REQ every 10 ms without listener; default zero.
    pub listen_grace: Duration,
    /// Connections and resolutions, at most a quarter of the IDs; default 65,536. As many more may
    /// be in time wait.
    pub max_connections: usize,
    /// Connections and resolutions per requesting address; default 16,384.
    pub max_per_peer: usize,
    /// Enables [`poll_record`], which the owner must drain; default off.
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
