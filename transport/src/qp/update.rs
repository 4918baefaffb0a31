//! Attributes that a transition takes without need of them.

use super::state::{Attribute, State};
use crate::{
    addr::{AddressVector, QKey},
    mem::Access,
};

/// What is to change besides what a transition needs (the optional attributes of `ibv_modify_qp`).
/// `None`, which is the default of each, leaves an attribute as it is. Which edge takes which
/// stands in one table, [`optional_attributes`](super::optional_attributes); any other is refused
/// by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QpUpdate {
    /// The state that the program believes the queue pair to be in: if it is another, nothing
    /// changes.
    pub current_state: Option<State>,
    /// Index into the P_Key table.
    pub pkey_index: Option<u16>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// The queue key (UD).
    pub qkey: Option<QKey>,
    /// The way to the peer. The peer itself stays the same.
    pub av: Option<AddressVector>,
    /// Code of the acknowledge timeout, 0..=31.
    pub timeout: Option<u8>,
    /// How often something is sent again without progress, 0..=7.
    pub retry_cnt: Option<u8>,
    /// How often the peer may say "not ready" without progress, 0..=7; 7 means without limit.
    pub rnr_retry: Option<u8>,
    /// READs and atomics outstanding at once, 0..=128.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics that the peer may have outstanding, 0..=128. With fewer than before, the
    /// oldest that were answered are forgotten; they cannot be answered again.
    pub max_dest_rd_atomic: Option<u8>,
    /// Code of the time for which the peer is asked to wait when no receive request is posted,
    /// 0..=31.
    pub min_rnr_timer: Option<u8>,
    /// A second way to the peer. Automatic path migration does not exist here, as in other RoCE
    /// adapters, so an edge that takes it in the specification answers
    /// [`NotSupported`](super::ModifyError::NotSupported).
    pub alt_path: Option<AddressVector>,
    /// The state of path migration. [`Migrated`](PathMigration::Migrated) is what it always is; the
    /// others are not supported.
    pub path_migration: Option<PathMigration>,
}

/// The state of automatic path migration (`ibv_mig_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PathMigration {
    /// There is one path, and it is in use. Packets say so with MigReq 1.
    #[default]
    Migrated,
    /// An alternate path is to be agreed on with the peer.
    Rearm,
    /// Both ends are ready to change to the alternate path.
    Armed,
}

impl QpUpdate {
    /// Everything stays as it is.
    pub const NONE: Self = Self {
        current_state: None,
        pkey_index: None,
        access: None,
        qkey: None,
        av: None,
        timeout: None,
        retry_cnt: None,
        rnr_retry: None,
        max_rd_atomic: None,
        max_dest_rd_atomic: None,
        min_rnr_timer: None,
        alt_path: None,
        path_migration: None,
    };

    /// Which attributes are to change.
    pub(super) fn given(&self) -> impl Iterator<Item = Attribute> {
        let Self {
            current_state,
            pkey_index,
            access,
            qkey,
            av,
            timeout,
            retry_cnt,
            rnr_retry,
            max_rd_atomic,
            max_dest_rd_atomic,
            min_rnr_timer,
            alt_path,
            path_migration,
        } = self;
        [
            (Attribute::CurrentState, current_state.is_some()),
            (Attribute::PKeyIndex, pkey_index.is_some()),
            (Attribute::Access, access.is_some()),
            (Attribute::QKey, qkey.is_some()),
            (Attribute::Av, av.is_some()),
            (Attribute::Timeout, timeout.is_some()),
            (Attribute::RetryCnt, retry_cnt.is_some()),
            (Attribute::RnrRetry, rnr_retry.is_some()),
            (Attribute::MaxRdAtomic, max_rd_atomic.is_some()),
            (Attribute::MaxDestRdAtomic, max_dest_rd_atomic.is_some()),
            (Attribute::MinRnrTimer, min_rnr_timer.is_some()),
            (Attribute::AltPath, alt_path.is_some()),
            (Attribute::PathMigration, path_migration.is_some()),
        ]
        .into_iter()
        .filter_map(|(attribute, given)| given.then_some(attribute))
    }
}
