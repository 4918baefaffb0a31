//! Attributes that a transition takes without need of them.

use core::fmt;

use super::state::{QpType, State};
use crate::{
    addr::{AddressVector, QKey},
    mem::Access,
};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])* $field:ident: $type:ty, $variant:ident $flag:literal;)*) => {
        /// An attribute that some edges take without need of it (`ibv_qp_attr_mask`); see
        /// [`QpUpdate`]. The port number is not among them: there is only one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Attribute {
            $(#[doc = concat!("`", stringify!($field), "`, `", $flag, "`.")] $variant,)*
        }

        impl Attribute {
            /// Every attribute.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        impl fmt::Display for Attribute {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => stringify!($field),)* })
            }
        }

        /// Changes besides those that a transition needs (the optional attributes of
        /// `ibv_modify_qp`). `None`, which is the default of each, leaves an attribute as it is.
        /// The edges that take each are in one table, [`optional_attributes`]; an edge refuses any
        /// other by name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct QpUpdate { $($(#[doc = $doc])* pub $field: Option<$type>,)* }

        impl QpUpdate {
            /// Everything stays as it is.
            pub const NONE: Self = Self { $($field: None,)* };

            /// The attributes that are to change.
            pub(super) fn given(&self) -> impl Iterator<Item = Attribute> {
                [$((Attribute::$variant, self.$field.is_some()),)*]
                    .into_iter()
                    .filter_map(|(attribute, given)| given.then_some(attribute))
            }
        }
    };
}

attributes! {
    /// The state that the program believes the queue pair to be in: if it is another, nothing
    /// changes.
    current_state: State, CurrentState "IBV_QP_CUR_STATE";
    /// Index into the P_Key table.
    pkey_index: u16, PKeyIndex "IBV_QP_PKEY_INDEX";
    /// Rights of the peer.
    access: Access, Access "IBV_QP_ACCESS_FLAGS";
    /// The queue key (UD).
    qkey: QKey, QKey "IBV_QP_QKEY";
    /// The way to the peer. The peer itself stays the same.
    av: AddressVector, Av "IBV_QP_AV";
    /// Code of the acknowledge timeout, 0..=31.
    timeout: u8, Timeout "IBV_QP_TIMEOUT";
    /// Number of times that something is sent again without progress, 0..=7.
    retry_cnt: u8, RetryCnt "IBV_QP_RETRY_CNT";
    /// Number of times that the peer may say "not ready" without progress, 0..=7; 7 means without
    /// limit.
    rnr_retry: u8, RnrRetry "IBV_QP_RNR_RETRY";
    /// READs and atomics outstanding at once, 0..=128.
    max_rd_atomic: u8, MaxRdAtomic "IBV_QP_MAX_QP_RD_ATOMIC";
    /// READs and atomics that the peer may have outstanding, 0..=128. With fewer than before, the
    /// oldest that were answered are forgotten; they cannot be answered again.
    max_dest_rd_atomic: u8, MaxDestRdAtomic "IBV_QP_MAX_DEST_RD_ATOMIC";
    /// Code of the time for which the peer is asked to wait when no receive request is posted,
    /// 0..=31.
    min_rnr_timer: u8, MinRnrTimer "IBV_QP_MIN_RNR_TIMER";
    /// A second way to the peer. Automatic path migration does not exist here, as in other RoCE
    /// adapters, so an edge that takes it in the specification answers
    /// [`NotSupported`](super::ModifyError::NotSupported).
    alt_path: AddressVector, AltPath "IBV_QP_ALT_PATH";
    /// The state of path migration. [`Migrated`](PathMigration::Migrated) is what it always is; the
    /// others are not supported.
    path_migration: PathMigration, PathMigration "IBV_QP_PATH_MIG_STATE";
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

/// Attributes that an edge takes besides those that it needs (table "QP state transition
/// properties", 11.2.4.2). Nothing for an edge that does not exist, and nothing on the way to
/// RESET, ERR or SQD.
#[must_use]
pub const fn optional_attributes(qp_type: QpType, from: State, to: State) -> &'static [Attribute] {
    use Attribute as A;
    use QpType::{RawPacket, Rc, Uc, Ud, XrcInitiator, XrcTarget};
    use State::{Init, Rtr, Rts, Sqd, Sqe};
    match (qp_type, from, to) {
        // the kernel's table gives it none but the rate limit, which no device here has
        (RawPacket, ..) => &[],
        (Ud, Init, Init | Rtr) | (Ud, Sqd, Sqd) => &[A::PKeyIndex, A::QKey],
        (Ud, Rtr | Rts | Sqd | Sqe, Rts) => &[A::CurrentState, A::QKey],
        (_, Init, Init) => &[A::PKeyIndex, A::Access],
        (_, Init, Rtr) => &[A::PKeyIndex, A::Access, A::AltPath],
        (Rc | XrcTarget, Rtr | Rts | Sqd, Rts) => {
            &[A::CurrentState, A::Access, A::MinRnrTimer, A::AltPath, A::PathMigration]
        }
        (Uc | XrcInitiator, Rtr | Rts | Sqd, Rts) => {
            &[A::CurrentState, A::Access, A::AltPath, A::PathMigration]
        }
        (Uc, Sqe, Rts) => &[A::CurrentState, A::Access],
        (Uc, Sqd, Sqd) => &[A::PKeyIndex, A::Access, A::Av, A::AltPath, A::PathMigration],
        (Rc, Sqd, Sqd) => &[
            A::PKeyIndex,
            A::Access,
            A::Av,
            A::Timeout,
            A::RetryCnt,
            A::RnrRetry,
            A::MaxRdAtomic,
            A::MaxDestRdAtomic,
            A::MinRnrTimer,
            A::AltPath,
            A::PathMigration,
        ],
        (XrcInitiator, Sqd, Sqd) => &[
            A::PKeyIndex,
            A::Access,
            A::Av,
            A::Timeout,
            A::RetryCnt,
            A::RnrRetry,
            A::MaxRdAtomic,
            A::AltPath,
            A::PathMigration,
        ],
        (XrcTarget, Sqd, Sqd) => &[
            A::PKeyIndex,
            A::Access,
            A::Av,
            A::Timeout,
            A::MaxDestRdAtomic,
            A::MinRnrTimer,
            A::AltPath,
            A::PathMigration,
        ],
        _ => &[],
    }
}
