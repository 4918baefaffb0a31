use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use roce_transport::{
    adapter::{ObjectError, ObjectMismatch},
    mem::{Access, RKey, WindowBind, WindowId, WindowType},
};

use super::{
    domain::{DomainInner, ProtectionDomain},
    memory::MemoryRegion,
};

/// Memory window (`ibv_mw`): a key for a part of a region, granted and revoked by work requests.
///
/// The window does not keep the region; without it the key is invalid.
///
/// ```
/// # use roce_provider::{QpInitAttr, transport::{mem::{Access, WindowType}, qp::QpType}};
/// # use roce_provider::transport::work::SendWr;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(16, None)?;
/// # let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
/// # qp.connect_to(qp.endpoint(0).ok_or("no address")?)?;
/// # let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let window = pd.alloc_window(WindowType::Type1)?;
/// let bind = window.bind_to(&region, 0, 64, Access::REMOTE_READ);
/// qp.post_send(&[SendWr::bind_window(1, bind)])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the last handle destroys the window (`ibv_dealloc_mw`), bound or not.
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
        self.domain.context.inner.shards.alter(|adapter| _ = adapter.dealloc_window(self.id));
    }
}

impl ProtectionDomain {
    /// Creates an unbound memory window (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`); [`ObjectError::Mismatch`] (`EINVAL`) for type 1 with
    /// [several shards](crate::OpenOptions::shards).
    pub fn alloc_window(&self, window_type: WindowType) -> Result<MemoryWindow, ObjectError> {
        let domain = self.inner.clone();
        let shards = &domain.context.inner.shards;
        let allocated = if window_type == WindowType::Type1 && shards.are_several() {
            Err(ObjectMismatch::Type1Window.into()) // all queue pairs share its binding
        } else {
            shards.make(
                |adapter| adapter.alloc_window(domain.id, window_type),
                |adapter, &rkey| adapter.adopt_window(domain.id, window_type, rkey),
            )
        };
        let rkey = domain.context.explained("ibv_alloc_mw", allocated)?;
        let (id, rkey) = (WindowId::of(rkey), AtomicU32::new(rkey.0));
        Ok(MemoryWindow { inner: Arc::new(WindowInner { domain, window_type, id, rkey }) })
    }
}

impl MemoryWindow {
    /// Window type.
    #[must_use]
    pub fn window_type(&self) -> WindowType {
        self.inner.window_type
    }

    /// Latest key, usable by peers once its bind completes.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        RKey(self.inner.rkey.load(Ordering::Relaxed))
    }

    /// Bind request for `length` bytes of `region` at `offset`, with the next key (`ibv_bind_mw`,
    /// `IBV_WR_BIND_MW`).
    ///
    /// For [`SendWr::bind_window`](roce_transport::work::SendWr::bind_window); type 2 includes
    /// `ibv_inc_rkey`. Execution checks the range. Length 0 unbinds type 1.
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

opaque_debug!(MemoryWindow, |this| window_type: this.inner.window_type, rkey: this.rkey());
