//! Memory regions.

use std::{fmt, io, ops::Range, sync::Arc};

use roce_transport::{
    adapter::Adapter,
    mem::{Access, LKey, Memory, MemoryFault, MrAttr, RKey, Region, RegisterError, Reregister},
    work::{Remote, Sge},
};
use thiserror::Error;

use super::domain::{DomainInner, ProtectionDomain};
use crate::region::{ForeignMemory, GpuMemory, MmapMemory, Unreachable};

/// Memory region (`ibv_mr`): bytes that the adapter, and with the right access a peer, may read and
/// write at any time. So no references point into it; programs copy in and out.
///
/// ```
/// # use roce_provider::transport::mem::Access;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write_at(8, b"hello")?;
/// assert_eq!(region.to_vec(8..13)?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the last handle deregisters the region; memory windows that are bound to it become
/// invalid. The memory itself stays until the last request that uses it is complete.
#[derive(Clone)]
pub struct MemoryRegion {
    inner: Arc<RegionInner>,
}

struct RegionInner {
    domain: Arc<DomainInner>,
    region: Arc<Region>,
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        self.domain.context.inner.shards.alter(|adapter| adapter.revoke(&self.region));
    }
}

/// Error of registering memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system has no memory left.
    #[error("cannot allocate the memory: {0}")]
    Memory(io::Error),
    /// A part of the program's own memory does not exist, or does not allow what the rights grant.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The region is not valid, or cannot be changed so.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl ProtectionDomain {
    /// Allocates `length` bytes of zeros and registers them (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`RegionError::Memory`] if there is not enough memory (`ENOMEM`); [`RegionError::Register`]
    /// for rights that do not go together (`EINVAL`) or too many regions (`ENOMEM`).
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion, RegionError> {
        let memory = self.explain_region(MmapMemory::new(length).map_err(RegionError::Memory))?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Allocates and registers memory whose pages are allocated on first use
    /// (`IBV_ACCESS_ON_DEMAND`).
    ///
    /// # Errors
    /// As above.
    pub fn allocate_on_demand(
        &self,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, RegionError> {
        let memory =
            self.explain_region(MmapMemory::on_demand(length).map_err(RegionError::Memory))?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Registers any [`Memory`] (`ibv_reg_mr_iova`). Its first byte has the address `address` in
    /// work requests and for peers; with 0 the region is zero-based (`IBV_ACCESS_ZERO_BASED`).
    ///
    /// # Errors
    /// [`RegionError::Register`] as above, and if the region would wrap past the end of the address
    /// space (`EINVAL`).
    pub fn register(
        &self,
        memory: Arc<dyn Memory>,
        address: u64,
        access: Access,
    ) -> Result<MemoryRegion, RegionError> {
        let domain = self.inner.clone();
        let attr = MrAttr { memory, address, access };
        let shards = &domain.context.inner.shards;
        let registered =
            shards.make(|adapter| adapter.register(domain.id, attr), Adapter::adopt_region);
        let region = self.explain_region(registered.map_err(RegionError::from))?;
        Ok(MemoryRegion { inner: Arc::new(RegionInner { domain, region }) })
    }

    /// Registers memory that the program owns (`ibv_reg_mr`, `ibv_reg_mr_iova`): `length` bytes
    /// from `pointer` on, whose first byte has the address `address` in work requests and for
    /// peers. Every page must exist now. If a page goes later, requests that need it fail.
    ///
    /// To change such a region, set [`ReregMr::memory`] to a new [`ForeignMemory`], also if only
    /// the rights grow: making it checks that the memory can be written.
    ///
    /// A pointer to memory of a GPU makes a region of [`GpuMemory`].
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
        // before the memory is looked at, as with adapters
        let fits = self.context().inner.engine.lock().adapter().fits_region(length as u64);
        self.explain_region(fits.map_err(RegionError::from))?;
        let found = GpuMemory::find(pointer.addr() as u64, length);
        if let Some(memory) = self.explain_region(found.map_err(RegionError::from))? {
            return self.register(Arc::new(memory), address, access);
        }
        // SAFETY: the caller promises the same
        let memory = unsafe { ForeignMemory::new(pointer, length, access) };
        let memory = self.explain_region(memory.map_err(RegionError::from))?;
        self.register(Arc::new(memory), address, access)
    }

    /// Registers memory that the program owns without checking it (`IBV_ACCESS_ON_DEMAND`): pages
    /// may come and go, and a request fails if a page that it needs is missing at that moment. A
    /// null pointer with [`usize::MAX`] bytes is the whole address space (an implicit region).
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

    fn explain_region<T>(&self, result: Result<T, RegionError>) -> Result<T, RegionError> {
        self.context().explained("ibv_reg_mr", result)
    }
}

impl MemoryRegion {
    /// Protection domain that the region belongs to.
    #[must_use]
    pub fn domain(&self) -> ProtectionDomain {
        ProtectionDomain { inner: self.inner.domain.clone() }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.region.length() as usize
    }

    /// True if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte in work requests and for peers.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.inner.region.address()
    }

    /// Access rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.inner.region.access()
    }

    /// Key for work requests.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.inner.region.lkey()
    }

    /// Key for peers.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.inner.region.rkey()
    }

    /// Scatter/gather element for a part of the region. The range is checked when the request is
    /// carried out; a length beyond 2^32−1 becomes that.
    #[must_use]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
        Sge { lkey: self.lkey(), address: self.address().wrapping_add(range.start as u64), length }
    }

    /// Scatter/gather element for the whole region.
    #[must_use]
    pub fn sge_all(&self) -> Sge {
        self.sge(0..self.len())
    }

    /// Address and R_Key of a byte, for a peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.address().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) if they are not inside, or the memory is gone.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.inner.region.memory().read_at(offset as u64, to)
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) if they are not inside, or the memory is gone.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), MemoryFault> {
        self.inner.region.memory().write_at(offset as u64, from)
    }

    /// Copy of the bytes in `range`.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) if they are not inside, or the memory is gone.
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>, MemoryFault> {
        if range.end > self.len() {
            return Err(MemoryFault);
        }
        let mut bytes = vec![0; range.len()];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) when the memory is gone.
    pub fn fill(&self, value: u8) -> Result<(), MemoryFault> {
        let piece = [value; 4096];
        (0..self.len())
            .step_by(piece.len())
            .try_for_each(|at| self.write_at(at, &piece[..piece.len().min(self.len() - at)]))
    }

    /// 8-byte word at `offset`, a multiple of eight, read atomically: a peer's write is seen whole
    /// or not at all. For polling on memory: everything that the same peer wrote before is seen,
    /// too.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) when there is no whole word at `offset`.
    pub fn load_u64(&self, offset: usize) -> Result<u64, MemoryFault> {
        self.inner.region.memory().load_u64(offset as u64)
    }

    /// Sets the 8-byte word at `offset`, a multiple of eight, atomically.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) when there is no whole word at `offset`.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), MemoryFault> {
        self.inner.region.memory().store_u64(offset as u64, value)
    }

    /// Deregisters the region now (`ibv_dereg_mr`), also if requests use it: those in flight fail
    /// with a protection error, those of peers with an access error. The memory can still be read
    /// and written through this handle.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] (`EBUSY`) while a memory window is bound to it.
    pub fn deregister(&self) -> Result<(), RegisterError> {
        let context = &self.inner.domain.context;
        let result = context.inner.shards.make(
            |adapter| adapter.deregister(&self.inner.region),
            |adapter, ()| {
                adapter.revoke(&self.inner.region);
                Ok(())
            },
        );
        context.explained("ibv_dereg_mr", result)
    }

    /// Changes rights, memory or protection domain (`ibv_rereg_mr`). Returns the new region, which
    /// has the same keys. This one is invalid, as if deregistered, and requests in flight that use
    /// it fail.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] (`EBUSY`) while a memory window is bound to it,
    /// [`RegisterError::Deregistered`] if it is invalid already, [`RegisterError::UnknownPd`] for a
    /// protection domain of another device, and as when registering (all `EINVAL`). Nothing
    /// has changed then.
    pub fn reregister(&self, change: ReregMr) -> Result<Self, RegisterError> {
        let ReregMr { pd, memory, access } = change;
        let domain = pd.map_or_else(|| self.inner.domain.clone(), |pd| pd.inner);
        if !Arc::ptr_eq(&domain.context.inner, &self.inner.domain.context.inner) {
            let context = &self.inner.domain.context;
            return context.explained("ibv_rereg_mr", Err(RegisterError::UnknownPd));
        }
        let change = Reregister { pd: Some(domain.id), memory, access };
        let changed = domain.context.inner.shards.make(
            |adapter| adapter.reregister(&self.inner.region, change),
            |adapter, changed| {
                adapter.adopt_change(&self.inner.region, changed);
                Ok(())
            },
        );
        let region = domain.context.explained("ibv_rereg_mr", changed)?;
        Ok(Self { inner: Arc::new(RegionInner { domain, region }) })
    }

    /// Fetches a part of the region, so that the first access does not wait (`ibv_advise_mr` with
    /// `IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE`). Only regions made by
    /// [`allocate_on_demand`](ProtectionDomain::allocate_on_demand) have anything to fetch.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) when the part is not inside, or the memory is gone.
    pub fn prefetch(&self, range: Range<usize>) -> Result<(), MemoryFault> {
        let memory = self.inner.region.memory();
        memory.check(range.start as u64, range.len())?;
        memory.prefetch(range.start as u64, range.len() as u64)
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryRegion").field(&self.inner.region).finish()
    }
}

/// Change of a region (`ibv_rereg_mr`); `None` leaves a part as it is.
#[derive(Clone, Debug, Default)]
pub struct ReregMr {
    /// Another protection domain of the same device (`IBV_REREG_MR_CHANGE_PD`).
    pub pd: Option<ProtectionDomain>,
    /// Other memory, with the address of its first byte (`IBV_REREG_MR_CHANGE_TRANSLATION`).
    pub memory: Option<(Arc<dyn Memory>, u64)>,
    /// Other access rights (`IBV_REREG_MR_CHANGE_ACCESS`).
    pub access: Option<Access>,
}
