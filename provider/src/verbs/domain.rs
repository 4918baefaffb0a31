//! Protection domains.

use std::sync::Arc;

use roce_transport::{
    adapter::{ObjectError, PdId},
    mem::{Access, Memory, WindowType},
    work::SrqAttr,
};

use super::{
    CompletionQueue, Context, MemoryRegion, MemoryWindow, NullRegion, QpAttr, QueuePair, RegionError, SharedReceiveQueue,
    XrcDomain,
};
use crate::region::MmapMemory;

/// A protection domain (`ibv_pd`): what is made in one can be used together and with nothing else.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) inner: Arc<DomainInner>,
}

pub(super) struct DomainInner {
    pub(super) context: Context,
    pub(super) id: PdId,
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        // everything made in it held it, so nothing uses it any more
        let _ = self.context.inner.engine.lock().adapter().dealloc_pd(self.id);
    }
}

impl ProtectionDomain {
    pub(super) fn new(context: &Context) -> Result<Self, ObjectError> {
        let id = context.inner.engine.lock().adapter().alloc_pd()?;
        Ok(Self { inner: Arc::new(DomainInner { context: context.clone(), id }) })
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Allocates `length` bytes of zeros and registers them (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`RegionError::Memory`] when there is not so much memory (`ENOMEM`); [`RegionError::Register`] for rights that do not
    /// go together (`EINVAL`) or too many regions (`ENOMEM`).
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion, RegionError> {
        let memory = MmapMemory::new(length).map_err(RegionError::Memory)?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Registers memory that a program brings (`ibv_reg_mr_iova`); its first byte has the address `address` in work requests
    /// and for peers. With 0 the region is zero-based (`IBV_ACCESS_ZERO_BASED`).
    ///
    /// # Errors
    /// [`RegionError::Register`], as above, and when the region would wrap past the end of the address space (`EINVAL`).
    pub fn register(&self, memory: Arc<dyn Memory>, address: u64, access: Access) -> Result<MemoryRegion, RegionError> {
        MemoryRegion::new(self, memory, address, access)
    }

    /// The same, with pages that come only when they are first used (`IBV_ACCESS_ON_DEMAND`).
    ///
    /// # Errors
    /// As above.
    pub fn allocate_on_demand(&self, length: usize, access: Access) -> Result<MemoryRegion, RegionError> {
        let memory = MmapMemory::on_demand(length).map_err(RegionError::Memory)?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Makes a region without memory (`ibv_alloc_null_mr`).
    ///
    /// # Errors
    /// [`RegionError::Register`] when there are too many regions (`ENOMEM`).
    pub fn null_region(&self) -> Result<NullRegion, RegionError> {
        NullRegion::new(self)
    }

    /// Makes a memory window that is bound to nothing (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn alloc_window(&self, window_type: WindowType) -> Result<MemoryWindow, ObjectError> {
        MemoryWindow::new(self, window_type)
    }

    /// Makes a shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn create_srq(&self, attr: SrqAttr) -> Result<SharedReceiveQueue, ObjectError> {
        SharedReceiveQueue::new(self, attr)
    }

    /// Makes an XRC SRQ (`ibv_create_srq_ex` with `IBV_SRQT_XRC`): the targets of `xrcd` receive into it when a request names
    /// its [`number`](SharedReceiveQueue::number), and what they receive completes in `cq`.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`); [`ObjectError::Unknown`] when the XRC domain or
    /// the completion queue is of another device (`EINVAL`).
    pub fn create_xrc_srq(
        &self,
        attr: SrqAttr,
        xrcd: &XrcDomain,
        cq: &CompletionQueue,
    ) -> Result<SharedReceiveQueue, ObjectError> {
        SharedReceiveQueue::new_xrc(self, attr, xrcd, cq)
    }

    /// Makes a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`); [`ObjectError::Unknown`] when a completion
    /// queue is of another device (`EINVAL`); [`ObjectError::Mismatch`] (`EINVAL`) for an XRC SRQ, for an XRC initiator with a
    /// shared receive queue, and for an XRC target, which [`XrcDomain::create_target`] makes.
    pub fn create_qp(&self, attr: &QpAttr) -> Result<QueuePair, ObjectError> {
        QueuePair::new(self, attr)
    }
}
