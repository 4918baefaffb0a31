use core::net::IpAddr;

use derive_more::Display;

use super::service::ServiceId;
use crate::{
    addr::{AddressVector, Mtu, PKey},
    ids::Qpn,
    psn::Psn,
};

/// Communication ID of a connection, or request ID of a resolution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
#[display("{_0:#010x}")]
pub struct ConnId(pub(super) u32);

/// Listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub(super) u32);

/// Arguments of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listen {
    /// Service.
    pub service_id: ServiceId,
    /// Local address; `None`: any.
    pub address: Option<IpAddr>,
    /// REQs that may wait; more are dropped.
    pub backlog: usize,
}

/// Transport service of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmService {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
}

/// A connection request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Service.
    pub service_id: ServiceId,
    /// Path.
    pub av: AddressVector,
    /// Transport service.
    pub service: CmService,
    /// Local end.
    pub end: ConnEnd,
    /// The adapter moves its queue pair; else [`ConnEvent::Reply`](super::ConnEvent::Reply).
    pub managed: bool,
    /// Retry counter of both sides, 0 to 7.
    pub retry_count: u8,
    /// Acknowledge timeout of both sides, code, 0: never.
    pub ack_timeout: u8,
    /// Adds the peer's ACK delay to the timeout.
    pub fits_ack_delay: bool,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// P_Key.
    pub pkey: PKey,
    /// Up to [`Req::PRIVATE_DATA`](super::Req::PRIVATE_DATA) bytes.
    pub private_data: &'a [u8],
}

/// Acceptance of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'a> {
    /// Local end.
    pub end: ConnEnd,
    /// Up to [`Rep::PRIVATE_DATA`](super::Rep::PRIVATE_DATA) bytes.
    pub private_data: &'a [u8],
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnEnd {
    /// Queue pair.
    pub qpn: Qpn,
    /// First PSN expected.
    pub starting_psn: Psn,
    /// READs and atomics served at once.
    pub responder_resources: u8,
    /// READs and atomics outstanding.
    pub initiator_depth: u8,
    /// RNR retry counter of the other end, 0 to 7.
    pub rnr_retry: u8,
    /// Local RNR NAK timer, code 0 to 31; not sent.
    pub min_rnr_timer: u8,
    /// Uses a shared receive queue.
    pub srq: bool,
}
