//! Protection domains.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Weak},
};

use roce_transport::{
    adapter::{ObjectError, PdId},
    addr::AddressVector,
    mem::{Access, Memory, WindowType},
    wire::GRH_LEN,
    work::{SrqAttr, Wc},
};

use super::{
    AddressHandle, AhFromWcError, CompletionQueue, Context, DeviceMemory, DeviceMemoryError,
    MemoryRegion, MemoryWindow, NullRegion, QpInitAttr, QueuePair, RegionError, SharedReceiveQueue,
    XrcDomain, address::reply_path,
};
use crate::region::{ForeignMemory, MmapMemory};

/// A protection domain (`ibv_pd`): what is made in one can be used together and with nothing else.
///
/// A parent domain (`ibv_alloc_parent_domain`) is one too: see
/// [`parent_domain`](Self::parent_domain).
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) inner: Arc<DomainInner>,
}

pub(super) struct DomainInner {
    pub(super) context: Context,
    pub(super) id: PdId,
    /// What a parent domain stands in front of, and the thread domain that it brings in.
    parent_of: Option<(Arc<DomainInner>, Option<ThreadDomain>)>,
}

/// A promise that what is made with it is used by one thread at a time (`ibv_td`). It goes into a
/// [parent domain](ProtectionDomain::parent_domain). Nothing here needs the promise: posting takes
/// the device's lock anyway, which costs little without contention, and breaking it does no harm.
#[derive(Clone, Debug)]
pub struct ThreadDomain {
    pub(super) inner: Context,
}

/// A protection domain, if it is still there.
pub(crate) struct WeakDomain(Weak<DomainInner>);

impl WeakDomain {
    pub(crate) fn upgrade(&self) -> Option<ProtectionDomain> {
        self.0.upgrade().map(|inner| ProtectionDomain { inner })
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        if self.parent_of.is_some() {
            return; // the domain itself may have other handles
        }
        // everything made in it held it, so nothing uses it any more
        let _ = self.context.inner.engine.lock().adapter().dealloc_pd(self.id);
    }
}

impl ProtectionDomain {
    pub(super) fn new(context: &Context) -> Result<Self, ObjectError> {
        let id = context.inner.engine.lock().adapter().alloc_pd()?;
        Ok(Self { inner: Arc::new(DomainInner { context: context.clone(), id, parent_of: None }) })
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn downgrade(&self) -> WeakDomain {
        WeakDomain(Arc::downgrade(&self.inner))
    }

    /// Makes a parent domain (`ibv_alloc_parent_domain`): the same protection domain under another
    /// handle, for objects that one thread at a time will use. What is made in it goes with what is
    /// made in this one, and keeps both alive.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`] for a thread domain of another device (`EINVAL`).
    pub fn parent_domain(&self, thread: Option<&ThreadDomain>) -> Result<Self, ObjectError> {
        let context = &self.inner.context;
        if thread.is_some_and(|thread| !Arc::ptr_eq(&thread.inner.inner, &context.inner)) {
            return Err(ObjectError::Unknown);
        }
        let parent_of = Some((self.inner.clone(), thread.cloned()));
        Ok(Self {
            inner: Arc::new(DomainInner { context: context.clone(), id: self.inner.id, parent_of }),
        })
    }

    /// The thread domain that a parent domain was made with.
    #[must_use]
    pub fn thread_domain(&self) -> Option<ThreadDomain> {
        self.inner.parent_of.as_ref()?.1.clone()
    }

    /// Makes an address handle (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`ObjectError::GidIndex`] when the way does not start at a GID of the device, of the family
    /// of the destination (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn create_ah(&self, av: AddressVector) -> Result<AddressHandle, ObjectError> {
        AddressHandle::new(self, av)
    }

    /// Makes an address handle for the sender of a received datagram (`ibv_create_ah_from_wc`):
    /// `area` is what lies in front of it, the first 40 bytes of the receive buffer.
    ///
    /// # Errors
    /// See [`AhFromWcError`] (`EINVAL`, `ENOMEM`).
    pub fn create_ah_from_wc(
        &self,
        wc: &Wc,
        area: &[u8; GRH_LEN],
    ) -> Result<AddressHandle, AhFromWcError> {
        Ok(self.create_ah(reply_path(&self.inner.context, wc, area)?)?)
    }

    /// Registers part of device memory (`ibv_reg_dm_mr`); its first byte has the address 0 in work
    /// requests and for peers, as with `IBV_ACCESS_ZERO_BASED`. For atomics the range must start at
    /// a multiple of eight.
    ///
    /// # Errors
    /// See [`DeviceMemoryError`]: a range that is not inside, memory of another device (`EINVAL`),
    /// too many regions (`ENOMEM`).
    pub fn register_dm(
        &self,
        memory: &DeviceMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MemoryRegion, DeviceMemoryError> {
        memory.register(self, range, access)
    }

    /// Allocates `length` bytes of zeros and registers them (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`RegionError::Memory`] when there is not so much memory (`ENOMEM`);
    /// [`RegionError::Register`] for rights that do not go together (`EINVAL`) or too many
    /// regions (`ENOMEM`).
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion, RegionError> {
        let memory = MmapMemory::new(length).map_err(RegionError::Memory)?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Registers memory that a program brings (`ibv_reg_mr_iova`); its first byte has the address
    /// `address` in work requests and for peers. With 0 the region is zero-based
    /// (`IBV_ACCESS_ZERO_BASED`).
    ///
    /// # Errors
    /// [`RegionError::Register`], as above, and when the region would wrap past the end of the
    /// address space (`EINVAL`).
    pub fn register(
        &self,
        memory: Arc<dyn Memory>,
        address: u64,
        access: Access,
    ) -> Result<MemoryRegion, RegionError> {
        MemoryRegion::new(self, memory, address, access)
    }

    /// The same, with pages that come only when they are first used (`IBV_ACCESS_ON_DEMAND`).
    ///
    /// # Errors
    /// As above.
    pub fn allocate_on_demand(
        &self,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, RegionError> {
        let memory = MmapMemory::on_demand(length).map_err(RegionError::Memory)?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Registers memory that the program owns (`ibv_reg_mr`, `ibv_reg_mr_iova`): `length` bytes
    /// from `pointer` on, whose first byte has the address `address` in work requests and for
    /// peers. Every page must be there now. If one is taken away later, requests that need it fail.
    ///
    /// To change such a region, give [`ReregMr::memory`](super::ReregMr::memory) a new
    /// [`ForeignMemory`], also when only the rights grow: it is what looks whether the memory can
    /// be written.
    ///
    /// # Errors
    /// [`RegionError::Unreachable`] (`EFAULT`); [`RegionError::Register`], as above.
    ///
    /// # Safety
    /// See [`ForeignMemory::new`].
    #[allow(unsafe_code, reason = "the promise is the caller's")]
    pub unsafe fn register_raw(
        &self,
        pointer: *mut u8,
        length: usize,
        address: u64,
        access: Access,
    ) -> Result<MemoryRegion, RegionError> {
        // SAFETY: the caller promises the same
        let memory = unsafe { ForeignMemory::new(pointer, length, access)? };
        self.register(Arc::new(memory), address, access)
    }

    /// The same without a look at the memory (`IBV_ACCESS_ON_DEMAND`): pages may come and go, and a
    /// request fails if one that it needs is missing at that moment. With a null pointer and
    /// [`usize::MAX`] bytes it is all of the address space (an implicit region).
    ///
    /// # Errors
    /// [`RegionError::Register`], as above.
    ///
    /// # Safety
    /// See [`ForeignMemory::on_demand`].
    #[allow(unsafe_code, reason = "the promise is the caller's")]
    pub unsafe fn register_raw_on_demand(
        &self,
        pointer: *mut u8,
        length: usize,
        address: u64,
        access: Access,
    ) -> Result<MemoryRegion, RegionError> {
        // SAFETY: the caller promises the same
        let memory = unsafe { ForeignMemory::on_demand(pointer, length) };
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

    /// Makes an XRC SRQ (`ibv_create_srq_ex` with `IBV_SRQT_XRC`): the targets of `xrcd` receive
    /// into it when a request names its [`number`](SharedReceiveQueue::number), and what they
    /// receive completes in `cq`.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`);
    /// [`ObjectError::Unknown`] when the XRC domain or the completion queue is of another device
    /// (`EINVAL`).
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
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`);
    /// [`ObjectError::Unknown`] when a completion queue or the shared receive queue is of another
    /// device (`EINVAL`); [`ObjectError::Mismatch`] (`EINVAL`) for an XRC SRQ, for an XRC initiator
    /// with a shared receive queue, and for an XRC target, which [`XrcDomain::create_target`]
    /// makes.
    pub fn create_qp(&self, attr: &QpInitAttr) -> Result<QueuePair, ObjectError> {
        QueuePair::new(self, attr)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("context", &self.inner.context)
            .field("id", &self.inner.id)
            .field("is_parent", &self.inner.parent_of.is_some())
            .finish_non_exhaustive()
    }
}
