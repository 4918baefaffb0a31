//! What a program asks of connection management, and what can be wrong with it.

use core::{net::IpAddr, ops::RangeInclusive, time::Duration};

use thiserror::Error;

use super::{connection::CmState, service::ServiceId};
use crate::{
    addr::{AddressVector, Mtu, PKey, Qpn},
    psn::Psn,
    qp::ModifyError,
};

/// How connection management works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Communication IDs are drawn from here; all but 0 by default. A narrower range lets several
    /// adapters share an address.
    pub ids: RangeInclusive<u32>,
    /// How long an answer is waited for before a message is sent again: the five-bit code of 4.096
    /// µs · 2^code. 18 (1.07 s) by default.
    pub response_timeout: u8,
    /// How often a message is sent again, 0..=15. 15 by default.
    pub max_retries: u8,
    /// How much longer a program may take that has not answered a request yet, which the peer is
    /// told when it asks again: a five-bit code. 24 (69 s) by default.
    pub service_timeout: u8,
    /// For how long a peer at which nobody listens yet is asked again, every 10 ms, before its
    /// refusal is told. Zero by default. Programs that start both sides at the same moment need it:
    /// they rely on resolving addresses to take some milliseconds.
    pub listen_grace: Duration,
    /// Connections at once, those in their time wait included. 65,536 by default.
    pub max_connections: usize,
}

impl Default for CmConfig {
    fn default() -> Self {
        Self {
            ids: 1..=u32::MAX,
            response_timeout: 18,
            max_retries: 15,
            service_timeout: 24,
            listen_grace: Duration::ZERO,
            max_connections: 1 << 16,
        }
    }
}

/// Names a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub(super) u32);

/// What a listener waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listen {
    /// The service.
    pub service_id: ServiceId,
    /// Only requests to this address of ours; all if `None`.
    pub address: Option<IpAddr>,
    /// Requests that may wait to be accepted; more are not answered, so that their senders ask
    /// again.
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

/// A request to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// What to connect to.
    pub service_id: ServiceId,
    /// The way to the peer.
    pub av: AddressVector,
    /// The transport service.
    pub service: CmService,
    /// The own queue pair.
    pub qpn: Qpn,
    /// Whether the adapter is to move that queue pair, which is in INIT, when the peer accepts.
    /// Otherwise [`CmEvent::Reply`](super::CmEvent::Reply) asks the program to.
    pub managed: bool,
    /// The first PSN that it expects.
    pub starting_psn: Psn,
    /// READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// READs and atomics that it wants to have outstanding at once.
    pub initiator_depth: u8,
    /// Retry counter of both sides, 0..=7.
    pub retry_count: u8,
    /// RNR retry counter of the peer, 0..=7.
    pub rnr_retry: u8,
    /// RNR NAK timer's code of the own queue pair, 0..=31.
    pub min_rnr_timer: u8,
    /// Acknowledge timeout's code of both sides, 0..=31.
    pub ack_timeout: u8,
    /// Whether its queue pair receives from a shared receive queue.
    pub srq: bool,
    /// The path MTU.
    pub path_mtu: Mtu,
    /// The partition.
    pub pkey: PKey,
    /// Up to 92 bytes.
    pub private_data: &'a [u8],
}

/// An answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'a> {
    /// The own queue pair.
    pub qpn: Qpn,
    /// The first PSN that it expects.
    pub starting_psn: Psn,
    /// READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// READs and atomics that it will have outstanding at once.
    pub initiator_depth: u8,
    /// RNR retry counter of the peer, 0..=7.
    pub rnr_retry: u8,
    /// RNR NAK timer's code of the own queue pair, 0..=31.
    pub min_rnr_timer: u8,
    /// Whether its queue pair receives from a shared receive queue.
    pub srq: bool,
    /// Up to 196 bytes.
    pub private_data: &'a [u8],
}

/// Why a command of connection management is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum CmError {
    /// No such connection, or it is gone.
    #[error("no such connection")]
    Unknown,
    /// Not in this state.
    #[error("not possible in state {0:?}")]
    State(CmState),
    /// The service has a listener on this address.
    #[error("the service has a listener on this address already")]
    InUse,
    /// More bytes than the message has room for.
    #[error("more than {0} bytes of private data")]
    PrivateData(usize),
    /// As many connections exist as may.
    #[error("no more than {0} connections")]
    TooMany(usize),
    /// The address vector names a GID index that does not exist, or one of another address family.
    #[error("no way from the GID index to the peer's GID")]
    NoRoute,
    /// A number too large.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// The queue pair could not be moved.
    #[error("the queue pair could not be moved: {0}")]
    QueuePair(ModifyError),
}
