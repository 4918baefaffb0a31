//! Settings of connection management.

use core::{ops::RangeInclusive, time::Duration};

use crate::time::timeout;

/// The longest time wait, which follows from the acknowledge timeout that a REQ names: 4.3 s, code
/// 20. Linux's acknowledge timeouts are 17 to 19, and packets are not under way for longer in
/// networks that lose what they cannot forward.
pub(super) const MAX_TIME_WAIT: Duration = timeout(20);

/// The longest time that a peer may say to take to acknowledge (target ACK delay), as a five-bit
/// code: 20 (4.3 s). Adapters say 15 or 16.
pub(super) const MAX_ACK_DELAY: u8 = 20;

/// The longest additional time that an MRA is granted, as a five-bit code: 24 (69 s), which is what
/// Linux asks for.
pub(super) const MAX_SERVICE_TIMEOUT: u8 = 24;

/// Settings of connection management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Communication IDs to draw from; all but 0 by default. A narrower range lets several adapters
    /// share an address.
    pub ids: RangeInclusive<u32>,
    /// Time until a message that has no answer is sent again: the five-bit code of 4.096 µs ·
    /// 2^code. 18 (1.07 s) by default.
    pub response_timeout: u8,
    /// Number of times that a message is sent again, 0..=15. 15 by default.
    pub max_retries: u8,
    /// Limit of messages, the REP included, for one REQ from an address that has not shown yet that
    /// it gets them. 2 or more: the last one is for the end of the connection. 3 by default. A
    /// REQ's source may be forged; a network that loses much may need more for a lost RTU.
    pub unproven_messages: u8,
    /// Additional time for a program that has not answered a request yet. A repeated request is
    /// answered with it (MRA): a five-bit code. 24 (69 s) by default.
    pub service_timeout: u8,
    /// Time for which a peer at which no program listens yet gets the request again, every 10 ms,
    /// before its refusal is reported. Zero by default. Programs that start both sides at the same
    /// moment need it: they rely on resolving addresses to take some milliseconds.
    pub listen_grace: Duration,
    /// Connections and service ID resolutions at once, at most a quarter of the communication IDs.
    /// 65,536 by default. Connections in their time wait are not counted. As many again may be in
    /// it; beyond that, the one with the least time left ends it early.
    pub max_connections: usize,
    /// How many of them may have begun with a request from one and the same address. 16,384 by
    /// default. More are not answered.
    pub max_per_peer: usize,
    /// True if [`poll_record`] names the connections that have records, for an owner that keeps
    /// records where they outlive the adapter. The owner must then take them. False by default.
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
