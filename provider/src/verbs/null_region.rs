//! Regions without memory.

use std::{fmt, sync::Arc};

use roce_transport::{
    mem::{Access, LKey, Memory, MemoryFault},
    work::Sge,
};

use super::{
    domain::ProtectionDomain,
    memory::{MemoryRegion, RegionError},
};

/// A region without memory (`ibv_alloc_null_mr`), for parts of messages that nobody wants: what is
/// written there is dropped, and what is read is zero. Peers cannot use it.
#[derive(Clone)]
pub struct NullRegion {
    region: MemoryRegion,
}

impl ProtectionDomain {
    /// Makes a region without memory (`ibv_alloc_null_mr`).
    ///
    /// # Errors
    /// [`RegionError::Register`] when there are too many regions (`ENOMEM`).
    pub fn null_region(&self) -> Result<NullRegion, RegionError> {
        let region = MemoryRegion::new(self, Arc::new(Nothing), 0, Access::LOCAL_WRITE)?;
        Ok(NullRegion { region })
    }
}

impl NullRegion {
    /// The key for work requests; any address goes with it.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.region.lkey()
    }

    /// So many bytes of nothing, for a work request.
    #[must_use]
    pub fn sge(&self, length: u32) -> Sge {
        Sge { lkey: self.lkey(), address: 0, length }
    }
}

impl fmt::Debug for NullRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NullRegion").field("lkey", &self.lkey()).finish_non_exhaustive()
    }
}

/// Reads as zeros, forgets what is written.
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
