//! Connections of a capture, and their figures.

use std::{fmt, time::Duration};

use roce_transport::{addr::Qpn, wire::Service};

use super::network::Address;

/// Two queue pairs, or a flow of datagrams.
#[derive(Clone, PartialEq, Debug)]
pub struct Connection {
    /// The service.
    pub service: Service,
    /// The end whose packet came first, and the other.
    pub ends: [EndPoint; 2],
    /// Number of connections with one of which this one is the same: its other direction is in one
    /// of them, and the capture does not show in which. 0: it has both, or no other was captured.
    pub one_of: usize,
    /// Figures of what each end has sent.
    pub summaries: [EndSummary; 2],
    /// Path MTU: that of the request for the connection, or the longest payload.
    pub mtu: Option<u32>,
    /// True if the path MTU may be larger: the longest payload is no part of a longer message.
    pub mtu_at_least: bool,
    /// True if messages of connection management made it.
    pub by_messages: bool,
    /// Times of its first and its last packet.
    pub time: (Duration, Duration),
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndPoint {
    /// Its address.
    pub address: Address,
    /// Its queue pair, if the capture tells.
    pub qpn: Option<Qpn>,
}

impl fmt::Display for EndPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.qpn {
            Some(qpn) => write!(f, "{} qp {qpn}", self.address),
            None => write!(f, "{} qp ?", self.address),
        }
    }
}

/// Packets that one end has sent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EndSummary {
    /// Packets.
    pub packets: u64,
    /// Bytes of payload, repeats included.
    pub bytes: u64,
    /// Request packets.
    pub requests: u64,
    /// Request packets that were sent again.
    pub repeated: u64,
    /// NAKs "PSN sequence error".
    pub sequence_naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Damaged packets.
    pub damaged: u64,
    /// Times from its requests to their answers.
    pub round_trips: Option<RoundTrips>,
}

/// Times from a request to its answer, at the place of the capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrips {
    /// The shortest.
    pub least: Duration,
    /// The one in the middle.
    pub median: Duration,
    /// The longest.
    pub most: Duration,
    /// Number of them.
    pub count: usize,
}

impl RoundTrips {
    /// Of times in any order.
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
    /// Bits per second of payload that an end has sent, repeats included; `None` where no time has
    /// passed.
    #[must_use]
    pub fn throughput(&self, end: usize) -> Option<f64> {
        let time = self.time.1.saturating_sub(self.time.0).as_secs_f64();
        let bytes = self.summaries.get(end)?.bytes;
        (time > 0.0).then(|| bytes as f64 * 8.0 / time)
    }
}
