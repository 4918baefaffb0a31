//! Memory windows.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use roce_transport::{
    adapter::ObjectError,
    mem::{Access, RKey, WindowBind, WindowId, WindowType},
};

use super::{
    domain::{DomainInner, ProtectionDomain},
    memory::MemoryRegion,
};

/// A memory window (`ibv_mw`): a key of its own for a part of a region, which requests give and
/// take back quickly. It keeps no region alive: when the region goes, the window leads nowhere.
///
/// Dropping the last handle destroys it (`ibv_dealloc_mw`), bound or not.
#[derive(Clone)]
pub struct MemoryWindow {
    inner: Arc<WindowInner>,
}

struct WindowInner {
    domain: Arc<DomainInner>,
    window_type: WindowType,
    id: WindowId,
    rkey: AtomicU32,
}

impl Drop for WindowInner {
    fn drop(&mut self) {
        let _ = self.domain.context.inner.engine.lock().adapter().dealloc_window(self.id);
    }
}

impl ProtectionDomain {
    /// Makes a memory window that is bound to nothing (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn alloc_window(&self, window_type: WindowType) -> Result<MemoryWindow, ObjectError> {
        let domain = self.inner.clone();
        let rkey =
            domain.context.inner.engine.lock().adapter().alloc_window(domain.id, window_type)?;
        let (id, rkey) = (WindowId::of(rkey), AtomicU32::new(rkey.0));
        Ok(MemoryWindow { inner: Arc::new(WindowInner { domain, window_type, id, rkey }) })
    }
}

impl MemoryWindow {
    /// Its type.
    #[must_use]
    pub fn window_type(&self) -> WindowType {
        self.inner.window_type
    }

    /// The key that it was given last, by [`bind_to`](Self::bind_to) or when it was made. Peers can
    /// use it once the bind is complete.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        RKey(self.inner.rkey.load(Ordering::Relaxed))
    }

    /// What a bind request ([`SendWr::bind_window`](roce_transport::work::SendWr::bind_window)) for
    /// `length` bytes of `region` from `offset` on needs, with the window's next key
    /// (`ibv_bind_mw`; for type 2 `ibv_inc_rkey` and `IBV_WR_BIND_MW`). Whether it is valid shows
    /// when the request is carried out. No bytes at all unbind a window of type 1.
    #[must_use]
    pub fn bind_to(
        &self,
        region: &MemoryRegion,
        offset: usize,
        length: usize,
        access: Access,
    ) -> WindowBind {
        let step = |key| Some(RKey(key).next().0);
        let old = self.inner.rkey.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        WindowBind {
            rkey: RKey(old.unwrap_or_else(|key| key)).next(),
            region: region.lkey(),
            address: region.address().wrapping_add(offset as u64),
            length: length as u64,
            access,
            zero_based: false,
        }
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("window_type", &self.inner.window_type)
            .field("rkey", &self.rkey())
            .finish_non_exhaustive()
    }
}
