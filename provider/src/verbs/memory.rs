//! Memory regions.

use std::{
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use roce_transport::{
    mem::{Access, LKey, Memory, MemoryFault, MrAttr, RKey, Region, RegisterError},
    work::{Remote, Sge},
};
use thiserror::Error;

use super::{ProtectionDomain, domain::DomainInner};

/// A memory region (`ibv_mr`): bytes that the adapter, and with the right access a peer, may read and write at any time.
/// So there are no references into it, only copies in and out.
///
/// Dropping the last handle deregisters it. The memory itself stays until the last request that uses it is complete.
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
        self.domain.context.inner.engine.lock().adapter().deregister(&self.region);
    }
}

/// Why memory cannot be registered.
#[derive(Debug, Error)]
pub enum RegionError {
    /// The system has no memory to give.
    #[error("cannot allocate the memory: {0}")]
    Memory(io::Error),
    /// The region itself is not valid.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl MemoryRegion {
    pub(super) fn new(pd: &ProtectionDomain, memory: Arc<dyn Memory>, address: u64, access: Access) -> Result<Self, RegionError> {
        let domain = pd.inner.clone();
        let attr = MrAttr { memory, address, access };
        let region = domain.context.inner.engine.lock().adapter().register(domain.id, attr)?;
        Ok(Self { inner: Arc::new(RegionInner { domain, region }) })
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.region.length() as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first byte, as work requests and peers count.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.inner.region.address()
    }

    /// The key for work requests.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.inner.region.lkey()
    }

    /// The key for peers.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.inner.region.rkey()
    }

    /// A part of it for a work request. Whether the range is inside is checked when the request is carried out; a length
    /// beyond 2^32−1 becomes that.
    #[must_use]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
        Sge { lkey: self.lkey(), address: self.address().wrapping_add(range.start as u64), length }
    }

    /// All of it for a work request.
    #[must_use]
    pub fn whole(&self) -> Sge {
        self.sge(0..self.len())
    }

    /// A place in it, to tell a peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.address().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// [`MemoryFault`] when they are not inside, or the memory is gone.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.inner.region.memory().read_at(offset as u64, to)
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// [`MemoryFault`] when they are not inside, or the memory is gone.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), MemoryFault> {
        self.inner.region.memory().write_at(offset as u64, from)
    }

    /// A copy of `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryFault`] when they are not inside, or the memory is gone.
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
    /// [`MemoryFault`] when the memory is gone.
    pub fn fill(&self, value: u8) -> Result<(), MemoryFault> {
        let piece = [value; 4096];
        (0..self.len()).step_by(piece.len()).try_for_each(|at| self.write_at(at, &piece[..piece.len().min(self.len() - at)]))
    }

    /// The 8-byte word at `offset`, a multiple of eight, read at once: a peer's write is seen whole or not at all. For
    /// polling on memory: everything that the same peer wrote before is seen too.
    ///
    /// # Errors
    /// [`MemoryFault`] when there is no whole word at `offset`.
    pub fn load_u64(&self, offset: usize) -> Result<u64, MemoryFault> {
        let word = self.inner.region.memory().words().and_then(|words| words.get(offset / 8));
        let word = word.filter(|_| offset.is_multiple_of(8)).ok_or(MemoryFault)?;
        Ok(word.load(Ordering::Acquire))
    }

    /// Sets the 8-byte word at `offset`, a multiple of eight, at once.
    ///
    /// # Errors
    /// [`MemoryFault`] when there is no whole word at `offset`.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), MemoryFault> {
        let word = self.inner.region.memory().words().and_then(|words| words.get(offset / 8));
        let word = word.filter(|_| offset.is_multiple_of(8)).ok_or(MemoryFault)?;
        word.store(value, Ordering::Release);
        Ok(())
    }

    /// Deregisters it now (`ibv_dereg_mr`), whatever still uses it: requests in flight fail with a protection error, peers
    /// with an access error. The memory can still be read and written here.
    pub fn deregister(&self) {
        self.inner.domain.context.inner.engine.lock().adapter().deregister(&self.inner.region);
    }
}
