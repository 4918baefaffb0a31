//! The regions of an adapter, found by either key.

use alloc::{collections::VecDeque, sync::Arc};
use core::sync::atomic::AtomicBool;

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;
use thiserror::Error;

use super::{
    Memory,
    region::{Access, AccessError, LKey, PdId, RKey, Region},
};
use crate::hash::IdHasher;

/// How many keys of deregistered regions are kept from being given out again.
const QUARANTINE: usize = 4096;

/// What to register.
pub struct MrAttr {
    /// The memory; the region is all of it.
    pub memory: Arc<dyn Memory>,
    /// The address of the first byte, as work requests and peers are to count.
    pub address: u64,
    /// Rights.
    pub access: Access,
}

/// Why a region cannot be registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum RegisterError {
    /// The protection domain does not exist.
    #[error("the protection domain does not exist")]
    UnknownPd,
    /// Remote writing or atomics without local writing.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE with them")]
    RemoteWithoutLocalWrite,
    /// `address` plus the memory's length does not fit 64 bits.
    #[error("the region would wrap past the end of the address space")]
    AddressOverflow,
    /// The adapter's limit of regions is reached.
    #[error("no more than {0} regions can be registered")]
    TooMany(usize),
}

/// Every region of an adapter. A region has two entries, one a key; the keys differ and are random.
pub(crate) struct RegionTable {
    by_key: HashMap<u32, Arc<Region>, IdHasher>,
    quarantine: VecDeque<u32>,
    quarantined: HashMap<u32, (), IdHasher>,
    max: usize,
}

impl RegionTable {
    pub(crate) fn new(max: usize) -> Self {
        Self { by_key: HashMap::default(), quarantine: VecDeque::new(), quarantined: HashMap::default(), max }
    }

    pub(crate) fn register(&mut self, pd: PdId, attr: MrAttr, rng: &mut ChaCha12Rng) -> Result<Arc<Region>, RegisterError> {
        let MrAttr { memory, address, access } = attr;
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::RemoteWithoutLocalWrite);
        }
        let length = memory.len();
        address.checked_add(length).ok_or(RegisterError::AddressOverflow)?;
        if self.by_key.len() / 2 >= self.max {
            return Err(RegisterError::TooMany(self.max));
        }
        let lkey = self.fresh_key(rng, 0);
        let rkey = self.fresh_key(rng, lkey);
        let region = Arc::new(Region {
            pd,
            access,
            address,
            length,
            lkey: LKey(lkey),
            rkey: RKey(rkey),
            memory,
            revoked: AtomicBool::new(false),
        });
        self.by_key.insert(lkey, region.clone());
        self.by_key.insert(rkey, region.clone());
        Ok(region)
    }

    pub(crate) fn deregister(&mut self, region: &Region) {
        region.revoke();
        for key in [region.lkey.0, region.rkey.0] {
            if self.by_key.remove(&key).is_some() {
                self.quarantine.push_back(key);
                self.quarantined.insert(key, ());
            }
        }
        while self.quarantine.len() > QUARANTINE {
            if let Some(key) = self.quarantine.pop_front() {
                self.quarantined.remove(&key);
            }
        }
    }

    /// The region of a key in a work request.
    pub(crate) fn local(&self, key: LKey) -> Option<&Arc<Region>> {
        self.by_key.get(&key.0).filter(|region| region.lkey == key)
    }

    /// The region of a key in a peer's request, if it allows this access.
    pub(crate) fn remote(
        &self,
        key: RKey,
        pd: PdId,
        address: u64,
        length: u64,
        needed: Access,
    ) -> Result<&Arc<Region>, AccessError> {
        let region = self.by_key.get(&key.0).filter(|region| region.rkey == key);
        let region = region.ok_or(AccessError::UnknownKey(key.0))?;
        region.check(key.0, pd, address, length, needed)?;
        Ok(region)
    }

    /// Whether a region of `pd` exists. Looks at every region: for destroying a protection domain only.
    pub(crate) fn any_of(&self, pd: PdId) -> bool {
        self.by_key.values().any(|region| region.pd == pd)
    }

    fn fresh_key(&self, rng: &mut ChaCha12Rng, other: u32) -> u32 {
        loop {
            let key = rng.next_u32();
            if key != 0 && key != other && !self.by_key.contains_key(&key) && !self.quarantined.contains_key(&key) {
                return key;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;
    use crate::mem::HeapMemory;

    const PD: PdId = PdId(0);

    fn table() -> (RegionTable, ChaCha12Rng) {
        (RegionTable::new(2), ChaCha12Rng::from_seed([7; 32]))
    }

    fn attr(address: u64, access: Access) -> MrAttr {
        MrAttr { memory: Arc::new(HeapMemory::new(100)), address, access }
    }

    #[test]
    fn remote_access_needs_key_domain_rights_and_bounds() {
        let (mut table, mut rng) = table();
        let region = table.register(PD, attr(0x1000, Access::REMOTE_READ), &mut rng).unwrap();
        let key = region.rkey();
        let check = |key, pd, address, length, needed| table.remote(key, pd, address, length, needed).map(|_| ());
        assert_eq!(check(key, PD, 0x1000, 100, Access::REMOTE_READ), Ok(()));
        assert_eq!(check(key, PD, 0x1064, 0, Access::REMOTE_READ), Ok(()));
        assert_eq!(
            check(RKey(region.lkey().0), PD, 0x1000, 1, Access::REMOTE_READ),
            Err(AccessError::UnknownKey(region.lkey().0))
        );
        assert!(table.local(LKey(key.0)).is_none());
        assert_eq!(check(key, PdId(1), 0x1000, 1, Access::REMOTE_READ), Err(AccessError::ProtectionDomain(key.0)));
        assert_eq!(
            check(key, PD, 0x1000, 1, Access::REMOTE_WRITE),
            Err(AccessError::Rights { key: key.0, needed: Access::REMOTE_WRITE })
        );
        for (address, length) in [(0xFFF, 1), (0x1000, 101), (0x1001, 100), (0x1065, 0), (u64::MAX, 2), (0x1000, u64::MAX)] {
            assert_eq!(
                check(key, PD, address, length, Access::REMOTE_READ),
                Err(AccessError::Bounds { key: key.0, address, length })
            );
        }
    }

    #[test]
    fn a_deregistered_key_is_dead_at_once() {
        let (mut table, mut rng) = table();
        let region = table.register(PD, attr(0, Access::LOCAL_WRITE), &mut rng).unwrap();
        table.deregister(&region);
        assert!(table.local(region.lkey()).is_none());
        assert_eq!(region.write(0, &[1]), Err(AccessError::Deregistered(region.lkey().0)));
    }

    #[test]
    fn refusals_at_registration() {
        let (mut table, mut rng) = table();
        let mut register = |address, access| table.register(PD, attr(address, access), &mut rng).map(|_| ());
        assert_eq!(register(0, Access::REMOTE_WRITE), Err(RegisterError::RemoteWithoutLocalWrite));
        assert_eq!(register(u64::MAX - 98, Access::empty()), Err(RegisterError::AddressOverflow));
        assert_eq!(register(0, Access::empty()), Ok(()));
        assert_eq!(register(0, Access::empty()), Ok(()));
        assert_eq!(register(0, Access::empty()), Err(RegisterError::TooMany(2)));
    }
}
