//! Attributes and state of a queue pair for queries.

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
// Fields as in `ibv_qp_attr`; the last three are ours.
pub struct QpInfo {
    /// Queue pair number.
    pub qpn: Qpn,
    /// Service.
    pub qp_type: QpType,
    /// State.
    pub state: State,
    /// In SQD: a started request is incomplete.
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
    /// Adaptive limit of unacknowledged request bytes, 768 added per packet (RC and XRC); not in
    /// the C API.
    pub window: u64,
    /// Rate in bits/s, if limited by CNPs (RC and XRC) or lost READ responses; not in the C API.
    pub rate: Option<u64>,
    /// Congestion counters; not in the C API.
    pub congestion: CongestionCounters,
}

/// Signs of congestion since creation or reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct CongestionCounters {
    /// Received packets marked "congestion experienced".
    pub ecn_marked: u64,
    /// CNPs sent; a UD queue pair sends none.
    pub cnp_sent: u64,
    /// CNPs received.
    pub cnp_received: u64,
}

/// A send queue and its progress; not in the C API.
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
    /// First and last PSN, once it has started.
    pub psns: Option<(Psn, Psn)>,
}
