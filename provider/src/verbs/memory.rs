use std::{io, ops::Range, sync::Arc};

use roce_transport::{
    adapter::Adapter,
    mem::{Access, LKey, Memory, MemoryFault, MrAttr, RKey, Region, RegisterError, Reregister},
    work::{Remote, Sge},
};
use thiserror::Error;

use super::domain::{DomainInner, ProtectionDomain};
use crate::region::{ForeignMemory, GpuMemory, MmapMemory, Unreachable};

/// Memory region (`ibv_mr`): bytes that the adapter, and a peer with rights, may access at any
/// time. Programs copy in and out.
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
/// Dropping the last handle deregisters the region and invalidates its memory windows. The memory
/// lives until its last request completes.
#[derive(Clone, derive_more::Debug)]
#[debug("MemoryRegion({:?})", inner.region)]
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
    /// Out of memory.
    #[error("cannot allocate the memory: {0}")]
    Memory(io::Error),
    /// Missing memory, or rights.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Invalid region, or change not allowed.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl ProtectionDomain {
    /// Allocates and registers `length` zero bytes (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`RegionError::Memory`] without memory (`ENOMEM`); [`RegionError::Register`] for
    /// incompatible rights (`EINVAL`) or too many regions (`ENOMEM`).
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion, RegionError> {
        let memory = self.explain_region(MmapMemory::new(length).map_err(RegionError::Memory))?;
        let address = memory.address();
        self.register(Arc::new(memory), address, access)
    }

    /// Like [`allocate`](Self::allocate), with pages on first use (`IBV_ACCESS_ON_DEMAND`).
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
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

    /// Registers any [`Memory`] (`ibv_reg_mr_iova`) whose first byte has `address` in requests; 0:
    /// `IBV_ACCESS_ZERO_BASED`.
    ///
    /// # Errors
    /// [`RegionError::Register`] as above, or if the region wraps past the address space
    /// (`EINVAL`).
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

    /// Registers `length` bytes of program memory at `pointer` (`ibv_reg_mr`, `ibv_reg_mr_iova`).
    ///
    /// Requests and peers address the first byte as `address`. Every page must exist now; requests
    /// fail on pages that go later. A pointer to GPU memory makes a region of [`GpuMemory`].
    ///
    /// To change the region, even to add rights, set [`ReregMr::memory`] to a new
    /// [`ForeignMemory`], whose constructor checks that the memory is writable.
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
        // before the memory, as adapters do
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

    /// Registers program memory unchecked (`IBV_ACCESS_ON_DEMAND`).
    ///
    /// Pages may come and go; a request fails on a missing page. A null pointer with [`usize::MAX`]
    /// bytes is the whole address space (implicit region).
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
    /// The protection domain.
    #[must_use]
    pub fn domain(&self) -> ProtectionDomain {
        ProtectionDomain { inner: self.inner.domain.clone() }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.region.length() as usize
    }

    /// True if the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte in requests.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.inner.region.address()
    }

    /// Access rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.inner.region.access()
    }

    /// Key for local work requests.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.inner.region.lkey()
    }

    /// Key for peers.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.inner.region.rkey()
    }

    /// Scatter/gather element; execution checks the range, and lengths saturate at 2^32−1.
    #[must_use]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
        Sge { lkey: self.lkey(), address: self.address().wrapping_add(range.start as u64), length }
    }

    /// Scatter/gather element of the whole region.
    #[must_use]
    pub fn sge_all(&self) -> Sge {
        self.sge(0..self.len())
    }

    /// Address and R_Key at `offset`, for a peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.address().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// Copies bytes at `offset` into `to`.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) outside the region, or if the memory is gone.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.inner.region.memory().read_at(offset as u64, to)
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) outside the region, or if the memory is gone.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), MemoryFault> {
        self.inner.region.memory().write_at(offset as u64, from)
    }

    /// Copies the bytes of `range`.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) outside the region, or if the memory is gone.
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
    /// [`MemoryFault`] (`EFAULT`) if the memory is gone.
    pub fn fill(&self, value: u8) -> Result<(), MemoryFault> {
        let piece = [value; 4096];
        (0..self.len())
            .step_by(piece.len())
            .try_for_each(|at| self.write_at(at, &piece[..piece.len().min(self.len() - at)]))
    }

    /// Reads an 8-byte word atomically at `offset`, a multiple of 8. The peer's earlier writes are
    /// visible too.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) if no whole word is at `offset`.
    pub fn load_u64(&self, offset: usize) -> Result<u64, MemoryFault> {
        self.inner.region.memory().load_u64(offset as u64)
    }

    /// Sets an 8-byte word atomically.
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) if no whole word is at `offset`.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), MemoryFault> {
        self.inner.region.memory().store_u64(offset as u64, value)
    }

    /// Deregisters the region now (`ibv_dereg_mr`).
    ///
    /// Requests in flight fail with a protection error, peers' with an access error. This handle
    /// can still access the memory.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] (`EBUSY`) while a memory window is bound.
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

    /// Changes rights, memory or domain (`ibv_rereg_mr`) and returns the new region with the same
    /// keys.
    ///
    /// The old region is deregistered; its requests in flight fail.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] (`EBUSY`) with a bound memory window,
    /// [`RegisterError::Deregistered`] for an invalid region, [`RegisterError::UnknownPd`] for
    /// another device's domain. Else as for registration (all `EINVAL`). Nothing changes on error.
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

    /// Prefetches a part of the region (`IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE`).
    ///
    /// Only affects regions of [`allocate_on_demand`](ProtectionDomain::allocate_on_demand).
    ///
    /// # Errors
    /// [`MemoryFault`] (`EFAULT`) outside the region, or if the memory is gone.
    pub fn prefetch(&self, range: Range<usize>) -> Result<(), MemoryFault> {
        let memory = self.inner.region.memory();
        memory.check(range.start as u64, range.len())?;
        memory.prefetch(range.start as u64, range.len() as u64)
    }
}

/// Change of a region (`ibv_rereg_mr`); `None` keeps a part.
#[derive(Clone, Debug, Default)]
pub struct ReregMr {
    /// Another protection domain of the same device (`IBV_REREG_MR_CHANGE_PD`).
    pub pd: Option<ProtectionDomain>,
    /// Other memory and its first address (`IBV_REREG_MR_CHANGE_TRANSLATION`).
    pub memory: Option<(Arc<dyn Memory>, u64)>,
    /// Other access rights (`IBV_REREG_MR_CHANGE_ACCESS`).
    pub access: Option<Access>,
}

/// Region without memory (`ibv_alloc_null_mr`), for unwanted parts of messages.
///
/// Writes are dropped and reads are zero. Peers cannot use it.
///
/// ```
/// # use roce_provider::transport::{mem::Access, work::RecvWr};
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let header = pd.allocate(64, Access::LOCAL_WRITE)?;
/// let rest = pd.null_region()?;
/// // keeps the first 64 bytes of a message of up to 1,064
/// let request = RecvWr::new(1, [header.sge_all(), rest.sge(1000)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct NullRegion {
    region: MemoryRegion,
}

impl ProtectionDomain {
    /// Creates a region without memory (`ibv_alloc_null_mr`).
    ///
    /// # Errors
    /// [`RegionError::Register`] for too many regions (`ENOMEM`).
    pub fn null_region(&self) -> Result<NullRegion, RegionError> {
        let region = self.register(Arc::new(Nothing), 0, Access::LOCAL_WRITE)?;
        Ok(NullRegion { region })
    }
}

impl NullRegion {
    /// Key, valid with any address.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.region.lkey()
    }

    /// Element of `length` bytes without memory.
    #[must_use]
    pub fn sge(&self, length: u32) -> Sge {
        Sge { lkey: self.lkey(), address: 0, length }
    }
}

opaque_debug!(NullRegion, |this| lkey: this.lkey());

struct Nothing;

impl Memory for Nothing {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, _offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        to.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _from: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }
}
