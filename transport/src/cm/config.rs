use core::{ops::RangeInclusive, time::Duration};

use crate::{defaults::defaults, time::timeout};

/// 4.3 s (code 20); Linux's REQs cause 17 to 19.
pub(super) const MAX_TIME_WAIT: Duration = timeout(20);

/// 4.3 s (code 20); adapters name 15 or 16.
pub(super) const MAX_ACK_DELAY: u8 = 20;

/// 69 s (code 24), Linux's value.
pub(super) const MAX_SERVICE_TIMEOUT: u8 = 24;

defaults! {
    /// Settings of connection management.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub CmConfig {
        /// Communication IDs, all by default; disjoint among adapters of one address.
        ids: RangeInclusive<u32> = 1..=u32::MAX;
        /// Retransmit timeout, code (4.096 µs · 2^code); default 18 (1.07 s).
        response_timeout: u8 = 18;
        /// Retransmissions per message, 0 to 15; default 15.
        max_retries: u8 = 15;
        /// Messages per REQ until its source is proven, with REP and last DREQ; at least 2, default
        /// 3. A lost RTU may need more.
        unproven_messages: u8 = 3;
        /// Service timeout in MRAs, code; default 24 (69 s).
        service_timeout: u8 = 24;
        /// Time to retry a REQ every 10 ms without listener; default zero.
        listen_grace: Duration = Duration::ZERO;
        /// Connections and resolutions, at most a quarter of the IDs; default 65,536. As many more
        /// may be in time wait.
        max_connections: usize = 1 << 16;
        /// Connections and resolutions per requesting address; default 16,384.
        max_per_peer: usize = 1 << 14;
        /// Enables [`poll_record`], which the owner must drain; default off.
        ///
        /// [`poll_record`]: super::Connections::poll_record
        tells_records: bool = false;
    }
}
