//! Memory windows: keys of their own for parts of regions, given and taken back by work requests.
//!
//! Read first: InfiniBand volume 1, 10.6.7 (memory windows).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use thiserror::Error;

use super::region::{Access, AccessError, Inside, Region, User};
use crate::ids::{LKey, PdId, Qpn, RKey};

/// Type of a window: its users, and the way in which it is given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// Any queue pair of its protection domain. Bound again at any time, and unbound by binding no
    /// bytes.
    Type1,
    /// The queue pair that it was bound with. Bound only after it was invalidated.
    Type2A,
    /// The same, and both must be of one protection domain.
    Type2B,
}

/// Target of binding a window (`ibv_mw_bind_info`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowBind {
    /// The window, named by the key that it gets: the upper 24 bits are the window's, the lower
    /// eight are free to choose. [`RKey::next`] of its present key makes sure that the old one is
    /// invalid.
    pub rkey: RKey,
    /// The region, which needs the right [`Access::MW_BIND`].
    pub region: LKey,
    /// First address, as the region counts.
    pub address: u64,
    /// Bytes. None at all unbinds a window of type 1.
    pub length: u64,
    /// Rights of peers: any of the remote rights. Those to change memory need
    /// [`Access::LOCAL_WRITE`] of the region.
    pub access: Access,
    /// Peers count from 0 instead of from `address` (`IBV_ACCESS_ZERO_BASED`). Not for type 1.
    pub zero_based: bool,
}

/// Reason why a window cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// No window has such a key.
    #[error("key {0:#010x} is not that of a memory window")]
    UnknownWindow(u32),
    /// A window of type 2 is bound already (o10-37.2.30).
    #[error("the memory window of type 2 is still bound; invalidate it first")]
    StillBound,
    /// Window, region and queue pair are not all of one protection domain (C10-72).
    #[error("window, region and queue pair are not of one protection domain")]
    ProtectionDomain,
    /// No region has this key.
    #[error("key {0:#010x} names no region")]
    UnknownRegion(u32),
    /// The region was registered without the right to bind windows.
    #[error("the region does not allow memory windows (MW_BIND)")]
    NotAllowed,
    /// The window would let peers change memory that even its owner may not write (C10-75).
    #[error("remote writing and atomics need a region with LOCAL_WRITE")]
    NeedsLocalWrite,
    /// A right that no window can grant.
    #[error("a memory window cannot grant {0:?}")]
    Rights(Access),
    /// Not inside the region.
    #[error("{length} bytes at {address:#x} are not inside the region")]
    Bounds {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// A window of type 2 is given back by invalidation, not by binding no bytes.
    #[error("a memory window of type 2 cannot be bound to no bytes")]
    Empty,
    /// A window of type 1 counts as its region does.
    #[error("a memory window of type 1 cannot be zero-based")]
    ZeroBased,
}

/// A memory window.
pub(super) struct Window {
    pub(super) pd: PdId,
    pub(super) window_type: WindowType,
    pub(super) rkey: RKey,
    pub(super) bound: Option<Bound>,
}

/// The region part that a window is bound to, and the queue pair that bound it.
pub(super) struct Bound {
    /// The part of the region that peers see, as a region.
    pub(super) part: Arc<Region>,
    pub(super) qpn: Qpn,
}

impl Window {
    /// Returns the queue pair that it was bound with, if it was bound.
    pub(super) fn unbind(&mut self) -> Option<Qpn> {
        let Bound { part, qpn } = self.bound.take()?;
        part.revoke();
        if let Some(Inside { region, .. }) = &part.inside {
            region.windows.fetch_sub(1, Ordering::Relaxed);
        }
        Some(qpn)
    }

    /// Checks that this user may use the window that is bound.
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
