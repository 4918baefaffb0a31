//! Memory windows of a region table.
//!
//! Read first: InfiniBand volume 1, 10.8.3.3 (bind), 11.4.1.1 (bind checks).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    region::{Access, AccessError, Inside, Region, User},
    table::RegionTable,
    window::{Bound, Window, WindowBind, WindowError, WindowType},
};
use crate::ids::{LKey, PdId, Qpn, RKey, WindowId};

const GRANTABLE: Access = Access::REMOTE_CHANGE
    .union(Access::REMOTE_READ)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

impl RegionTable {
    pub(crate) fn window_count(&self) -> usize {
        self.windows.len()
    }

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
                && !self.windows.contains_key(&WindowId::of(RKey(key)))
                && own.all(|key| self.is_free(key))
            {
                break RKey(key);
            }
        };
        self.adopt_window(pd, window_type, rkey);
        rkey
    }

    pub(crate) fn adopt_window(&mut self, pd: PdId, window_type: WindowType, rkey: RKey) {
        self.windows.insert(WindowId::of(rkey), Window { pd, window_type, rkey, bound: None });
    }

    pub(crate) fn dealloc_window(&mut self, id: WindowId) -> Option<PdId> {
        let mut window = self.windows.remove(&id)?;
        if let Some(qpn) = window.unbind() {
            self.bound.remove(&(qpn, id));
        }
        self.quarantine(window.rkey.0);
        Some(window.pd)
    }

    pub(crate) fn bind(&mut self, bind: &WindowBind, user: User) -> Result<(), WindowError> {
        let WindowBind { rkey, region, address, length, access, zero_based } = *bind;
        let target = self.local(region).cloned();
        let window =
            self.windows.get_mut(&WindowId::of(rkey)).ok_or(WindowError::UnknownWindow(rkey.0))?;
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
            behind_driver: target.behind_driver,
            windows: AtomicU32::new(0),
            inside: Some(Inside { region: target, offset }),
        });
        window.bound = Some(Bound { part, qpn: user.qpn });
        if window.window_type != WindowType::Type1 {
            self.bound.insert((user.qpn, WindowId::of(rkey)));
        }
        Ok(())
    }

    pub(crate) fn invalidate(&mut self, key: RKey, user: User) -> Result<(), AccessError> {
        let Some(window) =
            self.windows.get_mut(&WindowId::of(key)).filter(|window| window.rkey == key)
        else {
            // of a region, or none
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
        if let Some(qpn) = window.unbind() {
            self.bound.remove(&(qpn, WindowId::of(key)));
        }
        Ok(())
    }

    /// Type 2 windows only.
    pub(crate) fn unbind_all(&mut self, qpn: Qpn) {
        let first = (qpn, WindowId::of(RKey(0)));
        while let Some(&(own, id)) = self.bound.range(first..).next()
            && own == qpn
        {
            self.bound.remove(&(own, id));
            if let Some(window) = self.windows.get_mut(&id) {
                window.unbind();
            }
        }
    }

    pub(super) fn bound_window(&self, key: RKey, user: User) -> Result<&Arc<Region>, AccessError> {
        let window = self.windows.get(&WindowId::of(key)).filter(|window| window.rkey == key);
        let window = window.ok_or_else(|| self.nothing_at(key))?;
        let bound = window.bound.as_ref().ok_or(AccessError::NotBound(key.0))?;
        window.check_user(key.0, bound, user)?;
        Ok(&bound.part)
    }
}
