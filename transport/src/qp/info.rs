//! Attributes and state of a queue pair, as a query returns them.

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
// The fields are those of `ibv_qp_attr`, whose names programs know; the last three are ours.
pub struct QpInfo {
    /// Its number.
    pub qpn: Qpn,
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: State,
    /// In SQD: whether something that was started is not complete yet.
    pub sq_draining: bool,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// The peer's number (connections, from RTR on).
    pub dest_qpn: Qpn,
    /// Path MTU (connections, from RTR on).
    pub path_mtu: Mtu,
    /// The PSN expected next (connections).
    pub rq_psn: Psn,
    /// The PSN that the next new request gets.
    pub sq_psn: Psn,
    /// Rights of the peer.
    pub access: Access,
    /// The queue key (UD).
    pub qkey: QKey,
    /// The way to the peer (connections, from RTR on).
    pub av: Option<AddressVector>,
    /// Attributes of the requester (RC and XRC, from RTS on).
    pub requester: RequesterAttr,
    /// Attributes of the responder (RC and XRC, from RTR on).
    pub responder: ResponderAttr,
    /// Always [`Migrated`](PathMigration::Migrated).
    pub path_migration: PathMigration,
    /// Sizes.
    pub caps: QpCaps,
    /// Bytes of requests that may wait for an acknowledgement, 768 counted for each packet besides
    /// its payload (RC and XRC). It adapts; not of the C API.
    pub window: u64,
    /// Bits per second to which the peer's notifications (RC and XRC), or its losses of READ
    /// responses, have limited it. Not of the C API.
    pub rate: Option<u64>,
    /// Signs of congestion; not of the C API.
    pub congestion: CongestionCounters,
}

/// Signs of congestion that a queue pair has seen since it was made or reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct CongestionCounters {
    /// Packets that arrived with "congestion experienced" in their IP header.
    pub ecn_marked: u64,
    /// Notifications sent to the peer; none by a datagram queue pair.
    pub cnp_sent: u64,
    /// Notifications from the peer.
    pub cnp_received: u64,
}

/// The send queue of a queue pair, and how far it has come; not of the C API.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SendQueueInfo {
    /// The oldest PSN without an answer (RC and XRC).
    pub oldest_unacked: Psn,
    /// Bytes that count against the window.
    pub in_flight: u64,
    /// Requests that are not complete, the oldest first.
    pub requests: Vec<PostedSend>,
}

/// A send request that is not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PostedSend {
    /// Its identifier.
    pub wr_id: u64,
    /// Its operation.
    pub op: SendOp,
    /// Its bytes.
    pub length: u32,
    /// Its first and last PSN, once its first packet has been built.
    pub psns: Option<(Psn, Psn)>,
}
