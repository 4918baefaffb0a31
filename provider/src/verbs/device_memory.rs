use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use roce_transport::mem::{Access, Memory, MemoryFault};
use thiserror::Error;

use super::{
    context::Context,
    domain::ProtectionDomain,
    memory::{MemoryRegion, RegionError},
};
use crate::region::MmapMemory;

/// Device memory (`ibv_dm`), copied by programs and reached by peers through regions.
///
/// Ordinary memory with a hardware-like limit; freed with its last handle and region
/// (`ibv_free_dm`).
///
/// ```
/// # use roce_provider::transport::mem::Access;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// let memory = context.alloc_dm(4096)?;
/// memory.write_at(0, &7_u64.to_ne_bytes())?;
/// let counter = pd.register_dm(&memory, 0..8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DeviceMemory {
    inner: Arc<DmInner>,
}

struct DmInner {
    context: Context,
    memory: MmapMemory,
}

impl Drop for DmInner {
    fn drop(&mut self) {
        self.context.inner.device_memory.fetch_sub(self.memory.len() as usize, Ordering::Relaxed);
    }
}

/// Error of allocating or registering device memory.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an error's comment describes its fields")]
pub enum DeviceMemoryError {
    /// No device memory.
    #[error("the device has no memory for programs: max_dm_size is 0")]
    Missing,
    /// Zero bytes, or more than the rest: `used` of the device's `limit` are in use.
    #[error(
        "cannot allocate {length} bytes: {used} of the {limit} bytes of device memory are in use"
    )]
    Size { length: usize, limit: usize, used: usize },
    /// Range outside the memory.
    #[error("bytes {0:?} are not inside the device memory")]
    Range(Range<usize>),
    /// Memory and domain of different devices.
    #[error("the device memory and the protection domain are of different devices")]
    OtherDevice,
    /// Out of memory.
    #[error("cannot allocate the memory: {0}")]
    Memory(io::Error),
    /// Invalid region.
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl Context {
    /// Allocates `length` zero bytes, page-aligned (`ibv_alloc_dm`).
    ///
    /// # Errors
    /// [`DeviceMemoryError::Missing`] (`EOPNOTSUPP`); [`DeviceMemoryError::Size`] for zero bytes
    /// (`EINVAL`), or above the rest of `max_dm_size` (`ENOMEM`); [`DeviceMemoryError::Memory`]
    /// (`ENOMEM`).
    pub fn alloc_dm(&self, length: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        let limit = self.limits().max_dm_size;
        let reserve =
            |used: usize| used.checked_add(length).filter(|&after| length > 0 && after <= limit);
        let used = &self.inner.device_memory;
        let reserved = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        let allocated = reserved
            .map_err(|used| match limit {
                0 => DeviceMemoryError::Missing,
                _ => DeviceMemoryError::Size { length, limit, used },
            })
            .and_then(|_| {
                MmapMemory::new(length).map_err(|error| {
                    used.fetch_sub(length, Ordering::Relaxed);
                    DeviceMemoryError::Memory(error)
                })
            });
        let memory = self.explained("ibv_alloc_dm", allocated)?;
        Ok(DeviceMemory { inner: Arc::new(DmInner { context: self.clone(), memory }) })
    }
}

impl ProtectionDomain {
    /// Registers a part (`ibv_reg_dm_mr`) as a zero-based region. Atomics need a start divisible by
    /// 8.
    ///
    /// # Errors
    /// [`DeviceMemoryError`]: range outside, other device (`EINVAL`), too many regions (`ENOMEM`).
    pub fn register_dm(
        &self,
        memory: &DeviceMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MemoryRegion, DeviceMemoryError> {
        if !Arc::ptr_eq(&memory.inner.context.inner, &self.context().inner) {
            return self.context().explained("ibv_reg_dm_mr", Err(DeviceMemoryError::OtherDevice));
        }
        if range.start > range.end || range.end > memory.len() {
            return self.context().explained("ibv_reg_dm_mr", Err(DeviceMemoryError::Range(range)));
        }
        let window = Window {
            memory: memory.inner.clone(),
            start: range.start as u64,
            length: range.len() as u64,
        };
        Ok(self.register(Arc::new(window), 0, access)?)
    }
}

impl DeviceMemory {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.memory.len() as usize
    }

    /// Never true.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `from` to `offset` (`ibv_memcpy_to_dm`).
    ///
    /// # Errors
    /// [`MemoryFault`] outside the memory (`EFAULT`).
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), MemoryFault> {
        self.inner.memory.write_at(offset as u64, from)
    }

    /// Copies bytes at `offset` into `to` (`ibv_memcpy_from_dm`).
    ///
    /// # Errors
    /// [`MemoryFault`] outside the memory (`EFAULT`).
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.inner.memory.read_at(offset as u64, to)
    }
}

opaque_debug!(DeviceMemory, |this| context: this.inner.context, len: this.len());

/// Registered part.
struct Window {
    memory: Arc<DmInner>,
    start: u64,
    length: u64,
}

impl Memory for Window {
    fn len(&self) -> u64 {
        self.length
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        let words = self.memory.memory.words().filter(|_| self.start.is_multiple_of(8))?;
        words.get((self.start / 8) as usize..)?.get(..(self.length / 8) as usize)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(offset, to.len())?;
        self.memory.memory.read_at(self.start + offset, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.check(offset, from.len())?;
        self.memory.memory.write_at(self.start + offset, from)
    }
}
