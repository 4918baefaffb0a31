//! Arguments of the commands of connection management.

use core::{fmt, net::IpAddr};

use super::service::ServiceId;
use crate::{
    addr::{AddressVector, Mtu, PKey},
    ids::Qpn,
    psn::Psn,
};

/// Name of a connection or of a service ID resolution, and the communication ID (request ID) that
/// the peer sees. Not used again soon after its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub(super) u32);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Name of a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub(super) u32);

/// Requests that a listener is to get.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listen {
    /// The service.
    pub service_id: ServiceId,
    /// Own address that requests have to come to; any if `None`.
    pub address: Option<IpAddr>,
    /// Requests that may wait to be accepted; more are not answered, so that their senders send
    /// them again.
    pub backlog: usize,
}

/// A transport service, as a request names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmService {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
}

/// A request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Service to connect to.
    pub service_id: ServiceId,
    /// Path to the peer.
    pub av: AddressVector,
    /// Transport service.
    pub service: CmService,
    /// Own end.
    pub end: ConnEnd,
    /// True if the adapter is to move its queue pair, which is in INIT, when the peer accepts.
    /// Otherwise [`ConnEvent::Reply`](super::ConnEvent::Reply) asks the program to.
    pub managed: bool,
    /// Retry counter of both sides, 0..=7.
    pub retry_count: u8,
    /// Acknowledge timeout's code of both sides, 0..=31; 0 means for ever.
    pub ack_timeout: u8,
    /// True if this side's timeout leaves the peer the time to acknowledge that its reply states
    /// (target ACK delay).
    pub fits_ack_delay: bool,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Partition.
    pub pkey: PKey,
    /// Up to [`Req::PRIVATE_DATA`](super::Req::PRIVATE_DATA) bytes.
    pub private_data: &'a [u8],
}

/// A positive answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'a> {
    /// Own end.
    pub end: ConnEnd,
    /// Up to [`Rep::PRIVATE_DATA`](super::Rep::PRIVATE_DATA) bytes.
    pub private_data: &'a [u8],
}

/// An end of a connection, as it tells the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnEnd {
    /// Queue pair.
    pub qpn: Qpn,
    /// First PSN that it expects.
    pub starting_psn: Psn,
    /// READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// READs and atomics that it wants to have outstanding at once.
    pub initiator_depth: u8,
    /// RNR retry counter of the other end, 0..=7.
    pub rnr_retry: u8,
    /// RNR NAK timer's code, 0..=31. It is not told.
    pub min_rnr_timer: u8,
    /// True if it receives from a shared receive queue.
    pub srq: bool,
}
