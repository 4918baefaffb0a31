//! Memory windows: keys of their own for parts of regions, given and taken back by work requests.
//!
//! Read first: InfiniBand volume 1, 10.6.7 (memory windows), 10.8.3.3 (bind), 11.4.1.1 (checks when
//! binding).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;
use thiserror::Error;

use super::{
    RegionTable,
    region::{Access, AccessError, Inside, LKey, PdId, RKey, Region, User},
};
use crate::addr::Qpn;

/// Who may use a window, and how it is given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// Any queue pair of its protection domain. Bound anew at any time, and unbound by binding no
    /// bytes.
    Type1,
    /// The queue pair that it was bound with. Bound only after it was invalidated.
    Type2A,
    /// The same, and both must be of one protection domain.
    Type2B,
}

/// Names a memory window of an adapter: the upper 24 bits of its keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowId(u32);

impl WindowId {
    /// The window that has, or had, or may get, this key.
    #[must_use]
    pub const fn of(key: RKey) -> Self {
        Self(key.0 >> 8)
    }
}

/// What a window is to be bound to (`ibv_mw_bind_info`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowBind {
    /// The window, named by the key that it gets: the upper 24 bits are the window's, the lower
    /// eight are free to choose. [`RKey::next`] of its present key makes sure that the old one is
    /// dead.
    pub rkey: RKey,
    /// The region, which needs the right [`Access::MW_BIND`].
    pub region: LKey,
    /// First address, as the region counts.
    pub address: u64,
    /// Bytes. None at all unbinds a window of type 1.
    pub length: u64,
    /// What peers may do: any of the remote rights. Those to change memory need
    /// [`Access::LOCAL_WRITE`] of the region.
    pub access: Access,
    /// Peers count from 0 instead of from `address` (`IBV_ACCESS_ZERO_BASED`). Not for type 1.
    pub zero_based: bool,
}

/// Why a window cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
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

/// What peers may be granted through a window.
const GRANTABLE: Access = Access::REMOTE_CHANGE
    .union(Access::REMOTE_READ)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// A memory window.
pub(super) struct Window {
    pub(super) pd: PdId,
    window_type: WindowType,
    rkey: RKey,
    bound: Option<Bound>,
}

struct Bound {
    /// The part of the region that peers see, as a region.
    part: Arc<Region>,
    qpn: Qpn,
}

impl Window {
    fn unbind(&mut self) {
        if let Some(Bound { part, .. }) = self.bound.take() {
            part.revoke();
            if let Some(Inside { region, .. }) = &part.inside {
                region.windows.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether this user may use the window that is bound.
    fn check_user(&self, key: u32, bound: &Bound, user: User) -> Result<(), AccessError> {
        if self.window_type != WindowType::Type1 && bound.qpn != user.qpn {
            return Err(AccessError::QueuePair(key));
        }
        if self.window_type != WindowType::Type2A && self.pd != user.pd {
            return Err(AccessError::ProtectionDomain(key));
        }
        Ok(())
    }
}

impl RegionTable {
    pub(crate) fn window_count(&self) -> usize {
        self.windows.len()
    }

    /// Makes a window that is bound to nothing, and returns its first key.
    pub(crate) fn alloc_window(
        &mut self,
        pd: PdId,
        window_type: WindowType,
        rng: &mut ChaCha12Rng,
    ) -> RKey {
        let rkey = loop {
            let key = rng.next_u32();
            let mut own = (0..=0xFF).map(|low| key & !0xFF | low);
            if key >> 8 != 0
                && !self.windows.contains_key(&(key >> 8))
                && own.all(|key| self.is_free(key))
            {
                break RKey(key);
            }
        };
        self.windows.insert(rkey.0 >> 8, Window { pd, window_type, rkey, bound: None });
        rkey
    }

    /// Destroys a window, bound or not; returns whether there was one.
    pub(crate) fn dealloc_window(&mut self, id: WindowId) -> bool {
        let Some(mut window) = self.windows.remove(&id.0) else { return false };
        window.unbind();
        self.quarantine(window.rkey.0);
        true
    }

    /// Carries out a bind request of `user`.
    pub(crate) fn bind(&mut self, bind: &WindowBind, user: User) -> Result<(), WindowError> {
        let WindowBind { rkey, region, address, length, access, zero_based } = *bind;
        let target = self.local(region).cloned();
        let window =
            self.windows.get_mut(&(rkey.0 >> 8)).ok_or(WindowError::UnknownWindow(rkey.0))?;
        if window.window_type == WindowType::Type1 {
            if zero_based {
                return Err(WindowError::ZeroBased);
            }
            if length == 0 && window.pd == user.pd {
                window.unbind();
                window.rkey = rkey;
                return Ok(());
            }
        } else if window.bound.is_some() {
            return Err(WindowError::StillBound);
        } else if length == 0 {
            return Err(WindowError::Empty);
        }
        let target = target.ok_or(WindowError::UnknownRegion(region.0))?;
        if window.pd != user.pd || target.pd != user.pd {
            return Err(WindowError::ProtectionDomain);
        }
        if !target.access.contains(Access::MW_BIND) {
            return Err(WindowError::NotAllowed);
        }
        if !GRANTABLE.contains(access) {
            return Err(WindowError::Rights(access - GRANTABLE));
        }
        if access.contains(Access::FLUSH_PERSISTENT) && !target.memory.is_persistent() {
            return Err(WindowError::Rights(Access::FLUSH_PERSISTENT));
        }
        if access.intersects(Access::REMOTE_CHANGE) && !target.access.contains(Access::LOCAL_WRITE)
        {
            return Err(WindowError::NeedsLocalWrite);
        }
        let inside = address.checked_sub(target.address).filter(|&offset| offset <= target.length);
        let Some(offset) = inside.filter(|offset| length <= target.length - offset) else {
            return Err(WindowError::Bounds { address, length });
        };
        target.windows.fetch_add(1, Ordering::Relaxed);
        window.unbind();
        window.rkey = rkey;
        let part = Arc::new(Region {
            pd: window.pd,
            access,
            address: if zero_based { 0 } else { address },
            length,
            lkey: LKey(0),
            rkey,
            memory: target.memory.clone(),
            revoked: AtomicBool::new(false),
            windows: AtomicU32::new(0),
            inside: Some(Inside { region: target, offset }),
        });
        window.bound = Some(Bound { part, qpn: user.qpn });
        Ok(())
    }

    /// Takes a window of type 2 back from whoever has its key.
    pub(crate) fn invalidate(&mut self, key: RKey, user: User) -> Result<(), AccessError> {
        let Some(window) = self.windows.get_mut(&(key.0 >> 8)).filter(|window| window.rkey == key)
        else {
            // the key of a region, or of nothing
            return Err(if self.is_free(key.0) {
                AccessError::UnknownKey(key.0)
            } else {
                AccessError::NotInvalidable(key.0)
            });
        };
        if window.window_type == WindowType::Type1 {
            return Err(AccessError::NotInvalidable(key.0));
        }
        let bound = window.bound.as_ref().ok_or(AccessError::NotBound(key.0))?;
        window.check_user(key.0, bound, user)?;
        window.unbind();
        Ok(())
    }

    /// Takes back every window of type 2 that was bound with this queue pair, which is being
    /// destroyed. Looks at all windows.
    pub(crate) fn unbind_all(&mut self, qpn: Qpn) {
        for window in self.windows.values_mut() {
            let its = window.bound.as_ref().is_some_and(|bound| bound.qpn == qpn);
            if its && window.window_type != WindowType::Type1 {
                window.unbind();
            }
        }
    }

    pub(super) fn bound_window(&self, key: RKey, user: User) -> Result<&Arc<Region>, AccessError> {
        let window = self.windows.get(&(key.0 >> 8)).filter(|window| window.rkey == key);
        let window = window.ok_or(AccessError::UnknownKey(key.0))?;
        let bound = window.bound.as_ref().ok_or(AccessError::NotBound(key.0))?;
        window.check_user(key.0, bound, user)?;
        Ok(&bound.part)
    }
}
