//! Memory windows: keys for parts of regions, bound and invalidated by work requests.
//!
//! Read first: InfiniBand volume 1, 10.6.7 (memory windows).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use thiserror::Error;

use super::region::{Access, AccessError, Inside, Region, User};
use crate::ids::{LKey, PdId, Qpn, RKey};

/// Type of a window: who may use it and how it is unbound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// For any queue pair of its protection domain. Rebound any time; a bind of 0 bytes unbinds it.
    Type1,
    /// For the binding queue pair. Rebound only after invalidation.
    Type2A,
    /// As 2A, with queue pair and window in one protection domain.
    Type2B,
}

/// Arguments of a bind (`ibv_mw_bind_info`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowBind {
    /// The window's new key: its upper 24 bits, and 8 free bits. [`RKey::next`] invalidates the old
    /// key.
    pub rkey: RKey,
    /// The region, with [`Access::MW_BIND`].
    pub region: LKey,
    /// First address in the region.
    pub address: u64,
    /// Bytes; 0 unbinds type 1.
    pub length: u64,
    /// Remote rights; those to change memory need the region's [`Access::LOCAL_WRITE`].
    pub access: Access,
    /// Peers address the window from 0 (`IBV_ACCESS_ZERO_BASED`); not for type 1.
    pub zero_based: bool,
}

/// Reason why a bind fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// No such window.
    #[error("key {0:#010x} is not that of a memory window")]
    UnknownWindow(u32),
    /// A type 2 window is bound (o10-37.2.30).
    #[error("the memory window of type 2 is still bound; invalidate it first")]
    StillBound,
    /// Protection domains of window, region and queue pair differ (C10-72).
    #[error("window, region and queue pair are not of one protection domain")]
    ProtectionDomain,
    /// No region has this key.
    #[error("key {0:#010x} names no region")]
    UnknownRegion(u32),
    /// The region lacks `MW_BIND`.
    #[error("the region does not allow memory windows (MW_BIND)")]
    NotAllowed,
    /// Rights to change memory need the region's `LOCAL_WRITE` (C10-75).
    #[error("remote writing and atomics need a region with LOCAL_WRITE")]
    NeedsLocalWrite,
    /// A right that windows cannot grant.
    #[error("a memory window cannot grant {0:?}")]
    Rights(Access),
    /// The range exceeds the region.
    #[error("{length} bytes at {address:#x} are not inside the region")]
    Bounds {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// Type 2 is unbound by invalidation, not by 0 bytes.
    #[error("a memory window of type 2 cannot be bound to no bytes")]
    Empty,
    /// Type 1 cannot be zero-based.
    #[error("a memory window of type 1 cannot be zero-based")]
    ZeroBased,
}

pub(super) struct Window {
    pub(super) pd: PdId,
    pub(super) window_type: WindowType,
    pub(super) rkey: RKey,
    pub(super) bound: Option<Bound>,
}

/// A window's part of a region, and its queue pair.
pub(super) struct Bound {
    /// The part as a region.
    pub(super) part: Arc<Region>,
    pub(super) qpn: Qpn,
}

impl Window {
    /// Returns the queue pair if it was bound.
    pub(super) fn unbind(&mut self) -> Option<Qpn> {
        let Bound { part, qpn } = self.bound.take()?;
        part.revoke();
        if let Some(Inside { region, .. }) = &part.inside {
            region.windows.fetch_sub(1, Ordering::Relaxed);
        }
        Some(qpn)
    }

    /// Checks that `user` may use the bound window.
    pub(super) fn check_user(
        &self,
        key: u32,
        bound: &Bound,
        user: User,
    ) -> Result<(), AccessError> {
        if self.window_type != WindowType::Type1 && bound.qpn != user.qpn {
            return Err(AccessError::QueuePair(key));
        }
        if self.window_type != WindowType::Type2A && self.pd != user.pd {
            return Err(AccessError::ProtectionDomain(key));
        }
        Ok(())
    }
}
