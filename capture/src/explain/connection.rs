use std::time::Duration;

use derive_more::Display;
use roce_transport::{addr::Qpn, wire::Service};

use super::network::Address;

/// Two queue pairs, or a flow of datagrams.
#[derive(Clone, PartialEq, Debug)]
pub struct Connection {
    /// Transport service.
    pub service: Service,
    /// The end whose packet came first, then the other.
    pub ends: [EndPoint; 2],
    /// Candidates for the other direction, if undecided; else 0.
    pub one_of: usize,
    /// Figures of each end's packets.
    pub summaries: [EndSummary; 2],
    /// Path MTU: from the CM request, or the longest payload.
    pub mtu: Option<u32>,
    /// True if the path MTU may be larger: the longest payload is no part of a longer
    /// message.
    pub mtu_at_least: bool,
    /// Made by CM messages.
    pub by_messages: bool,
    /// Times of first and last packet.
    pub time: (Duration, Duration),
}

/// End of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
#[display("{address} qp {}", qpn.map_or_else(|| "?".to_owned(), |qpn| qpn.to_string()))]
pub struct EndPoint {
    /// Address.
    pub address: Address,
    /// Queue pair, if known.
    pub qpn: Option<Qpn>,
}

/// Packets sent by one end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EndSummary {
    /// Packets.
    pub packets: u64,
    /// Payload bytes, retransmissions included.
    pub bytes: u64,
    /// Request packets.
    pub requests: u64,
    /// Retransmitted request packets.
    pub repeated: u64,
    /// NAKs "PSN sequence error".
    pub sequence_naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// Congestion notification packets.
    pub cnps: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Damaged packets.
    pub damaged: u64,
    /// Round trips, where captured.
    pub round_trips: Option<RoundTrips>,
}

/// Times from requests to responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrips {
    /// Minimum.
    pub least: Duration,
    /// Median.
    pub median: Duration,
    /// Maximum.
    pub most: Duration,
    /// Number of times.
    pub count: usize,
}

impl RoundTrips {
    pub(super) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        Some(Self {
            least: *times.first()?,
            median: times[times.len() / 2],
            most: *times.last()?,
            count: times.len(),
        })
    }
}

impl Connection {
    /// Transport service in words.
    #[must_use]
    pub const fn service_name(&self) -> &'static str {
        match self.service {
            Service::Rc => "reliable connection",
            Service::Uc => "unreliable connection",
            Service::Xrc => "extended reliable connection",
            Service::Ud => "datagrams",
            Service::Cnp => "congestion notifications",
        }
    }

    /// Payload bits per second of an end, retransmissions included; `None` for zero time.
    #[must_use]
    pub fn throughput(&self, end: usize) -> Option<f64> {
        let time = self.time.1.saturating_sub(self.time.0).as_secs_f64();
        let bytes = self.summaries.get(end)?.bytes;
        (time > 0.0).then(|| bytes as f64 * 8.0 / time)
    }
}
