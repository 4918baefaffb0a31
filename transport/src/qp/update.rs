use derive_more::Display;

use super::state::{QpType, State};
use crate::{
    addr::{AddressVector, QKey},
    mem::Access,
};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])* $field:ident: $type:ty, $variant:ident $flag:literal;)*) => {
        /// Optional attribute (`ibv_qp_attr_mask`) of [`QpUpdate`]. The port number is fixed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
        pub enum Attribute {
            $(
                #[doc = concat!("`", stringify!($field), "`, `", $flag, "`.")]
                #[display("{}", stringify!($field))]
                $variant,
            )*
        }

        impl Attribute {
            /// Every attribute.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        /// Optional changes of `ibv_modify_qp`, default `None`. Edges refuse attributes outside
        /// [`optional_attributes`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct QpUpdate { $($(#[doc = $doc])* pub $field: Option<$type>,)* }

        impl QpUpdate {
            /// No change.
            pub const NONE: Self = Self { $($field: None,)* };

            pub(super) fn given(&self) -> impl Iterator<Item = Attribute> {
                [$((Attribute::$variant, self.$field.is_some()),)*]
                    .into_iter()
                    .filter_map(|(attribute, given)| given.then_some(attribute))
            }
        }
    };
}

attributes! {
    /// The program's expected state; a mismatch fails.
    current_state: State, CurrentState "IBV_QP_CUR_STATE";
    /// P_Key index.
    pkey_index: u16, PKeyIndex "IBV_QP_PKEY_INDEX";
    /// The peer's rights.
    access: Access, Access "IBV_QP_ACCESS_FLAGS";
    /// Queue key (UD).
    qkey: QKey, QKey "IBV_QP_QKEY";
    /// Address vector.
    av: AddressVector, Av "IBV_QP_AV";
    /// Acknowledge timeout code, 0..=31.
    timeout: u8, Timeout "IBV_QP_TIMEOUT";
    /// Retries without progress, 0..=7.
    retry_cnt: u8, RetryCnt "IBV_QP_RETRY_CNT";
    /// RNR retries without progress, 0..=7; 7 is unlimited.
    rnr_retry: u8, RnrRetry "IBV_QP_RNR_RETRY";
    /// Outstanding READs and atomics, 0..=128.
    max_rd_atomic: u8, MaxRdAtomic "IBV_QP_MAX_QP_RD_ATOMIC";
    /// READs and atomics outstanding from the peer, 0..=128. A reduction forgets the oldest, which
    /// cannot be repeated.
    max_dest_rd_atomic: u8, MaxDestRdAtomic "IBV_QP_MAX_DEST_RD_ATOMIC";
    /// RNR timer code, 0..=31.
    min_rnr_timer: u8, MinRnrTimer "IBV_QP_MIN_RNR_TIMER";
    /// Alternate path, refused as [`NotSupported`](super::ModifyError::NotSupported): no automatic
    /// path migration, as in other RoCE adapters.
    alt_path: AddressVector, AltPath "IBV_QP_ALT_PATH";
    /// Path migration state, always [`Migrated`](PathMigration::Migrated).
    path_migration: PathMigration, PathMigration "IBV_QP_PATH_MIG_STATE";
}

/// Automatic path migration (`ibv_mig_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PathMigration {
    /// One path is in use; packets carry MigReq 1.
    #[default]
    Migrated,
    /// An alternate path is negotiated.
    Rearm,
    /// Both ends can migrate.
    Armed,
}

/// Optional attributes of an edge (table "QP state transition properties", 11.2.4.2); none towards
/// RESET, ERR or SQD.
#[must_use]
pub const fn optional_attributes(qp_type: QpType, from: State, to: State) -> &'static [Attribute] {
    use Attribute as A;
    use QpType::{RawPacket, Rc, Uc, Ud, XrcInitiator, XrcTarget};
    use State::{Init, Rtr, Rts, Sqd, Sqe};
    macro_rules! sqd {
        ($($attribute:ident)*) => {
            &[A::PKeyIndex, A::Access, A::Av, $(A::$attribute,)* A::AltPath, A::PathMigration]
        };
    }
    match (qp_type, from, to) {
        // the kernel's table has only the unsupported rate limit
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
        (Uc, Sqd, Sqd) => sqd!(),
        (Rc, Sqd, Sqd) => sqd!(Timeout RetryCnt RnrRetry MaxRdAtomic MaxDestRdAtomic MinRnrTimer),
        (XrcInitiator, Sqd, Sqd) => sqd!(Timeout RetryCnt RnrRetry MaxRdAtomic),
        (XrcTarget, Sqd, Sqd) => sqd!(Timeout MaxDestRdAtomic MinRnrTimer),
        _ => &[],
    }
}
