use std::sync::{Arc, Weak};

use roce_transport::{
    adapter::{Adapter, ObjectError, PdId},
    work::XrcdId,
};

use super::context::Context;

/// Protection domain (`ibv_pd`): its objects work together, and with no others.
///
/// ```
/// # use roce_provider::{QpInitAttr, transport::{mem::Access, qp::QpType}};
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let cq = context.create_cq(16, None)?;
/// let pd = context.alloc_pd()?;
/// let memory = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) inner: Arc<DomainInner>,
}

pub(super) struct DomainInner {
    pub(super) context: Context,
    pub(super) id: PdId,
    /// Parent domain only: its domain and thread domain.
    parent_of: Option<(Arc<DomainInner>, Option<ThreadDomain>)>,
}

/// Thread domain (`ibv_td`): a promise of use by one thread at a time, for a [parent
/// domain](ProtectionDomain::parent_domain).
///
/// Without effect: posting always locks the device, cheaply without contention.
///
/// ```
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// let thread = context.alloc_td();
/// let parent = pd.parent_domain(Some(&thread))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ThreadDomain {
    pub(super) inner: Context,
}

pub(crate) struct WeakDomain(Weak<DomainInner>);

impl WeakDomain {
    pub(crate) fn upgrade(&self) -> Option<ProtectionDomain> {
        self.0.upgrade().map(|inner| ProtectionDomain { inner })
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        if self.parent_of.is_some() {
            return; // the domain goes with its last handle
        }
        // never in use: its objects keep it alive
        self.context.inner.shards.alter(|adapter| _ = adapter.dealloc_pd(self.id));
    }
}

impl Context {
    /// Creates a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, ObjectError> {
        let adopt = |adapter: &mut Adapter, pd: &PdId| adapter.adopt_pd(*pd);
        let allocated = self.inner.shards.make(Adapter::alloc_pd, adopt);
        let id = self.explained("ibv_alloc_pd", allocated)?;
        let inner = DomainInner { context: self.clone(), id, parent_of: None };
        Ok(ProtectionDomain { inner: Arc::new(inner) })
    }

    /// Creates a thread domain (`ibv_alloc_td`).
    #[must_use]
    pub fn alloc_td(&self) -> ThreadDomain {
        ThreadDomain { inner: self.clone() }
    }
}

impl ProtectionDomain {
    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn downgrade(&self) -> WeakDomain {
        WeakDomain(Arc::downgrade(&self.inner))
    }

    /// Creates a parent domain (`ibv_alloc_parent_domain`): the same domain under another handle.
    /// Objects of both work together and keep both alive.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`] for a thread domain of another device (`EINVAL`).
    pub fn parent_domain(&self, thread: Option<&ThreadDomain>) -> Result<Self, ObjectError> {
        let context = &self.inner.context;
        let own = thread.map_or(Ok(()), |thread| context.check_own(&thread.inner));
        context.explained("ibv_alloc_parent_domain", own)?;
        let parent_of = Some((self.inner.clone(), thread.cloned()));
        Ok(Self {
            inner: Arc::new(DomainInner { context: context.clone(), id: self.inner.id, parent_of }),
        })
    }

    /// The parent domain's thread domain.
    #[must_use]
    pub fn thread_domain(&self) -> Option<ThreadDomain> {
        self.inner.parent_of.as_ref()?.1.clone()
    }
}

opaque_debug!(
    ProtectionDomain,
    |this| context: this.inner.context, id: this.inner.id, is_parent: this.inner.parent_of.is_some()
);

/// XRC domain (`ibv_xrcd`): its targets receive only into its XRC SRQs, as requests name them.
///
/// ```
/// # use roce_provider::transport::work::SrqAttr;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(16, None)?;
/// let xrcd = context.open_xrcd()?;
/// let srq = pd.create_xrc_srq(SrqAttr { max_wr: 16, max_sge: 1 }, &xrcd, &cq)?;
/// let target = xrcd.create_target()?;
/// // requests of the peer name the SRQ by this number
/// assert!(srq.number().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Belongs to one open device and process; C domains can be shared through a file.
#[derive(Clone)]
pub struct XrcDomain {
    inner: Arc<XrcdInner>,
}

struct XrcdInner {
    context: Context,
    id: XrcdId,
}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        // never in use: targets and XRC SRQs keep it alive
        let _ = self.context.inner.engine.alter(|adapter| adapter.close_xrcd(self.id));
    }
}

impl Context {
    /// Creates an XRC domain (`ibv_open_xrcd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn open_xrcd(&self) -> Result<XrcDomain, ObjectError> {
        let opened = self.inner.engine.alter(|adapter| adapter.open_xrcd());
        let id = self.explained("ibv_open_xrcd", opened)?;
        Ok(XrcDomain { inner: Arc::new(XrcdInner { context: self.clone(), id }) })
    }
}

impl XrcDomain {
    pub(super) fn id(&self) -> XrcdId {
        self.inner.id
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

opaque_debug!(XrcDomain, |this| context: this.inner.context, id: this.inner.id);
