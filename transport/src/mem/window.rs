//! Memory windows: keys for parts of regions.
//!
//! Read first: InfiniBand volume 1, 10.6.7.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::region::{Access, AccessError, Inside, Region, User};
use crate::{
    ids::{LKey, PdId, Qpn, RKey},
    named::errors,
};

/// Type of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// Open to its protection domain. Rebound at any time; 0 bytes unbind.
    Type1,
    /// Open to the binding queue pair. Rebound after invalidation.
    Type2A,
    /// Type 2A within one protection domain.
    Type2B,
}

/// Arguments of a bind (`ibv_mw_bind_info`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowBind {
    /// New key: the window's upper 24 bits, and 8 free bits, as from [`RKey::next`].
    pub rkey: RKey,
    /// Region with [`Access::MW_BIND`].
    pub region: LKey,
    /// First address.
    pub address: u64,
    /// Bytes; 0 unbinds type 1.
    pub length: u64,
    /// Remote rights.
    pub access: Access,
    /// Addresses from 0 (`IBV_ACCESS_ZERO_BASED`), type 2 only.
    pub zero_based: bool,
}

errors! {
    /// Reason why a bind fails.
    #[non_exhaustive]
    WindowError {
        UnknownWindow(u32) "key {0:#010x} is not of a memory window";
        /// o10-37.2.30.
        StillBound "the memory window of type 2 is still bound; invalidate it first";
        /// C10-72.
        ProtectionDomain "window, region and queue pair are of different protection domains";
        UnknownRegion(u32) "key {0:#010x} names no region";
        NotAllowed "the region lacks the access right MW_BIND";
        /// C10-75.
        NeedsLocalWrite "REMOTE_WRITE and REMOTE_ATOMIC need a region with LOCAL_WRITE";
        Rights(Access) "a memory window cannot grant {0:?}";
        Bounds { address: u64, length: u64 }
            "{length} bytes at {address:#x} are not inside the region";
        Empty "a memory window of type 2 cannot have length 0; invalidate it instead";
        ZeroBased "a memory window of type 1 cannot be zero-based";
    }
}

pub(super) struct Window {
    pub(super) pd: PdId,
    pub(super) window_type: WindowType,
    pub(super) rkey: RKey,
    pub(super) bound: Option<Bound>,
}

pub(super) struct Bound {
    /// The part as the peer sees it.
    pub(super) part: Arc<Region>,
    pub(super) qpn: Qpn,
}

impl Window {
    pub(super) fn unbind(&mut self) -> Option<Qpn> {
        let Bound { part, qpn } = self.bound.take()?;
        part.revoke();
        if let Some(Inside { region, .. }) = &part.inside {
            region.windows.fetch_sub(1, Ordering::Relaxed);
        }
        Some(qpn)
    }

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
