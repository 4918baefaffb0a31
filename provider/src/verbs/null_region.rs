use std::sync::Arc;

use roce_transport::{
    mem::{Access, LKey, Memory, MemoryFault},
    work::Sge,
};

use super::{
    domain::ProtectionDomain,
    memory::{MemoryRegion, RegionError},
};

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

opaque_debug!(NullRegion: "NullRegion", |this| lkey: this.lkey());

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
