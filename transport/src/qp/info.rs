//! Attributes and state of a queue pair, as a query returns them.

use super::{
    attr::QpCaps,
    state::{QpType, State},
    update::PathMigration,
};
use crate::{
    addr::{AddressVector, Mtu, QKey},
    ids::Qpn,
    mem::Access,
    psn::Psn,
};

/// What a queue pair tells of itself (`ibv_query_qp`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
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
    /// What the peer may do.
    pub access: Access,
    /// The queue key (UD).
    pub qkey: QKey,
    /// The way to the peer (connections, from RTR on).
    pub av: Option<AddressVector>,
    /// Code of the acknowledge timeout (RC and XRC, from RTS on).
    pub timeout: u8,
    /// Retries without progress (RC and XRC, from RTS on).
    pub retry_cnt: u8,
    /// Retries of a peer that is not ready (RC and XRC, from RTS on).
    pub rnr_retry: u8,
    /// READs and atomics outstanding at once (RC and XRC, from RTS on).
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding (RC and XRC, from RTR on).
    pub max_dest_rd_atomic: u8,
    /// Code of the time asked for when no receive request is posted (RC and XRC, from RTR on).
    pub min_rnr_timer: u8,
    /// Always [`Migrated`](PathMigration::Migrated).
    pub path_migration: PathMigration,
    /// Sizes.
    pub caps: QpCaps,
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
