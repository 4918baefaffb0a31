use super::{
    attr::{QpCaps, RequesterAttr, ResponderAttr},
    state::{QpType, State},
    update::PathMigration,
};
use alloc::vec::Vec;

use crate::{
    addr::{AddressVector, Mtu, QKey},
    ids::Qpn,
    mem::Access,
    psn::Psn,
    work::SendOp,
};

/// Attributes and state of a queue pair (`ibv_query_qp`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct QpInfo {
    /// Queue pair number.
    pub qpn: Qpn,
    /// Service.
    pub qp_type: QpType,
    /// State.
    pub state: State,
    /// SQD with an incomplete request.
    pub sq_draining: bool,
    /// P_Key index.
    pub pkey_index: u16,
    /// The peer's queue pair (connections from RTR).
    pub dest_qpn: Qpn,
    /// Path MTU (connections from RTR).
    pub path_mtu: Mtu,
    /// Next expected PSN (connections).
    pub rq_psn: Psn,
    /// PSN of the next new request.
    pub sq_psn: Psn,
    /// The peer's rights.
    pub access: Access,
    /// Queue key (UD).
    pub qkey: QKey,
    /// Address vector (connections from RTR).
    pub av: Option<AddressVector>,
    /// Requester attributes (RC and XRC from RTS).
    pub requester: RequesterAttr,
    /// Responder attributes (RC and XRC from RTR).
    pub responder: ResponderAttr,
    /// Always [`Migrated`](PathMigration::Migrated).
    pub path_migration: PathMigration,
    /// Sizes.
    pub caps: QpCaps,
    /// Limit of unacknowledged request bytes, plus 768 per packet (RC and XRC); not in C.
    pub window: u64,
    /// Rate limit in bits/s from CNPs (RC and XRC) or lost READ responses; not in C.
    pub rate: Option<u64>,
    /// Congestion counters; not in C.
    pub congestion: CongestionCounters,
}

/// Signs of congestion since reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct CongestionCounters {
    /// Received ECN marks.
    pub ecn_marked: u64,
    /// CNPs sent; UD sends none.
    pub cnp_sent: u64,
    /// CNPs received.
    pub cnp_received: u64,
}

/// A send queue's progress; not in C.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SendQueueInfo {
    /// Oldest unacknowledged PSN (RC and XRC).
    pub oldest_unacked: Psn,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Incomplete requests, oldest first.
    pub requests: Vec<PostedSend>,
}

/// An incomplete send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PostedSend {
    /// Identifier.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Bytes.
    pub length: u32,
    /// First and last PSN, once started.
    pub psns: Option<(Psn, Psn)>,
}
