//! Objects shared by a device's adapters (shards).
//!
//! One adapter creates an object, and the others adopt it, all in the same order: their tables must
//! agree.

use alloc::sync::Arc;

use super::{
    Adapter,
    error::{ObjectError, ObjectKind, known, limit},
    tables::Used,
};
use crate::{
    ids::{PdId, RKey, SrqId},
    mem::{Region, RegisterError, WindowType},
    work::{CompletionQueue, SharedQueue},
};

/// A shared receive queue between two adapters.
#[derive(derive_more::Debug)]
pub struct ReleasedSrq(#[debug("{:?}", _0.info())] SharedQueue);

impl Adapter {
    /// Adopts a protection domain.
    ///
    /// # Errors
    /// [`ObjectError::TooMany`]; [`ObjectError::Unknown`] unless the number is the next one.
    pub fn adopt_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        limit(ObjectKind::ProtectionDomain, self.tables.pds.len(), self.limits.max_pd)?;
        let entry = self.tables.pds.vacant_entry();
        known(entry.key() == pd.0 as usize)?;
        entry.insert(());
        Ok(())
    }

    /// Adopts a region, after its protection domain.
    ///
    /// # Errors
    /// [`RegisterError::UnknownPd`], [`RegisterError::TooMany`]; [`RegisterError::InUse`] if a key
    /// is taken.
    pub fn adopt_region(&mut self, region: &Arc<Region>) -> Result<(), RegisterError> {
        if !self.tables.has_pd(region.pd()) {
            return Err(RegisterError::UnknownPd);
        }
        self.resources.regions.adopt(region)?;
        self.tables.use_pd(region.pd());
        self.late_for(region);
        Ok(())
    }

    /// Adopts the result of a [`reregister`](Self::reregister) elsewhere.
    pub fn adopt_change(&mut self, region: &Region, changed: &Arc<Region>) {
        self.late.place_all();
        self.resources.regions.replace(changed);
        self.tables.use_pd(changed.pd());
        self.tables.leave_pd(region.pd());
        self.late_for(changed);
    }

    /// Adopts an unbound memory window. Only type 2 means the same on every shard.
    ///
    /// # Errors
    /// [`ObjectError::TooMany`]; [`ObjectError::Unknown`].
    pub fn adopt_window(
        &mut self,
        pd: PdId,
        window_type: WindowType,
        rkey: RKey,
    ) -> Result<(), ObjectError> {
        self.admit_window(pd)?;
        self.resources.regions.adopt_window(pd, window_type, rkey);
        Ok(())
    }

    /// Releases an unused shared receive queue.
    pub fn release_srq(&mut self, id: SrqId) -> Option<ReleasedSrq> {
        self.tables.check_unused(Used::Srq(id)).ok()?;
        let srq = self.resources.srqs.remove(&id)?;
        self.tables.remove_user(Used::by_srq(&srq));
        Some(ReleasedSrq(srq))
    }

    /// Adopts a released queue with its requests.
    pub fn adopt_srq(&mut self, id: SrqId, srq: ReleasedSrq) {
        self.tables.add_user(Used::by_srq(&srq.0));
        self.resources.srqs.insert(id, srq.0);
    }

    /// Adopts a completion queue.
    ///
    /// # Errors
    /// [`ObjectError::TooMany`]; [`ObjectError::Unknown`] unless the number is the next one.
    pub fn adopt_cq(&mut self, cq: &Arc<CompletionQueue>) -> Result<(), ObjectError> {
        limit(ObjectKind::CompletionQueue, self.tables.cqs.len(), self.limits.max_cq)?;
        let entry = self.tables.cqs.vacant_entry();
        known(entry.key() == cq.id().0 as usize)?;
        entry.insert(cq.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        adapter::AdapterConfig,
        ids::WindowId,
        mem::{Access, HeapMemory, MrAttr, Reregister},
    };

    fn adapters() -> [Adapter; 2] {
        [1, 2].map(|seed| Adapter::new(AdapterConfig::new([seed; 32])))
    }

    fn attr() -> MrAttr {
        MrAttr {
            memory: Arc::new(HeapMemory::new(64)),
            address: 0x1000,
            access: Access::REMOTE_READ,
        }
    }

    #[test]
    fn what_is_adopted_has_the_same_numbers_and_can_be_destroyed() {
        let [mut one, mut other] = adapters();
        let pd = one.alloc_pd().unwrap();
        let region = one.register(pd, attr()).unwrap();
        assert_eq!(other.adopt_region(&region), Err(RegisterError::UnknownPd));
        other.adopt_pd(pd).unwrap();
        other.adopt_region(&region).unwrap();
        assert_eq!(other.adopt_region(&region), Err(RegisterError::InUse));
        assert_eq!(other.dealloc_pd(pd), Err(ObjectError::InUse));
        let cq = one.create_cq(16).unwrap();
        other.adopt_cq(&cq).unwrap();
        assert_eq!(other.adopt_cq(&cq), Err(ObjectError::Unknown), "the next number is another");
        let rkey = one.alloc_window(pd, WindowType::Type2B).unwrap();
        other.adopt_window(pd, WindowType::Type2B, rkey).unwrap();

        let changed = one.reregister(
            &region,
            Reregister { access: Some(Access::empty()), ..Reregister::default() },
        );
        let changed = changed.unwrap();
        other.adopt_change(&region, &changed);
        for adapter in [&mut one, &mut other] {
            adapter.dealloc_window(WindowId::of(rkey)).unwrap();
            adapter.destroy_cq(cq.id()).unwrap();
        }
        other.revoke(&region); // already replaced
        assert_eq!(other.dealloc_pd(pd), Err(ObjectError::InUse));
        other.revoke(&changed);
        other.dealloc_pd(pd).unwrap();
    }
}
