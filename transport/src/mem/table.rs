use alloc::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use core::sync::atomic::{AtomicBool, AtomicU32};

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    Memory,
    region::{Access, AccessError, Region, User},
    window::Window,
};
use crate::{
    hash::{IdHasher, IdMap},
    ids::{LKey, PdId, Qpn, RKey, WindowId},
    named::errors,
};

/// Keys withheld after deregistration.
const QUARANTINE: usize = 4096;

/// Attributes of a region to register.
#[derive(Debug)]
pub struct MrAttr {
    /// All of the region's memory.
    pub memory: Arc<dyn Memory>,
    /// First address.
    pub address: u64,
    /// Rights.
    pub access: Access,
}

/// Changes of a region (`ibv_rereg_mr`).
#[derive(Debug, Default)]
pub struct Reregister {
    /// Protection domain (`IBV_REREG_MR_CHANGE_PD`).
    pub pd: Option<PdId>,
    /// Memory and first address (`IBV_REREG_MR_CHANGE_TRANSLATION`).
    pub memory: Option<(Arc<dyn Memory>, u64)>,
    /// Rights (`IBV_REREG_MR_CHANGE_ACCESS`).
    pub access: Option<Access>,
}

errors! {
    /// Reason for a refused registration or change.
    #[non_exhaustive]
    RegisterError {
        UnknownPd "the protection domain does not exist";
        RemoteWithoutLocalWrite "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE; add it";
        NotPersistent "FLUSH_PERSISTENT needs persistent memory, such as a region of a file";
        AddressOverflow "the region would wrap past the end of the address space";
        TooLong(u64) "the region is longer than {0} bytes";
        TooMany(usize) "too many memory regions; at most {0}";
        Deregistered "the region is already deregistered";
        InUse "a memory window is bound to the region; invalidate or deallocate it first";
    }
}

/// Regions by both keys, which are random, and memory windows. A window owns 256 keys: programs
/// choose the low eight bits.
#[derive(Default)]
pub(crate) struct RegionTable {
    by_key: IdMap<u32, Arc<Region>>,
    pub(super) windows: IdMap<WindowId, Window>,
    /// Type 2 windows.
    pub(super) bound: BTreeSet<(Qpn, WindowId)>,
    quarantine: VecDeque<u32>,
    quarantined: HashMap<u32, (), IdHasher>,
    regions: usize,
    max: usize,
    equal_keys: bool,
}

impl RegionTable {
    pub(crate) fn new(max: usize, equal_keys: bool) -> Self {
        Self { max, equal_keys, ..Self::default() }
    }

    pub(crate) fn register(
        &mut self,
        pd: PdId,
        attr: MrAttr,
        rng: &mut ChaCha12Rng,
    ) -> Result<Arc<Region>, RegisterError> {
        check(&attr)?;
        if self.regions >= self.max {
            return Err(RegisterError::TooMany(self.max));
        }
        let lkey = self.fresh_key(rng, 0);
        let rkey = if self.equal_keys { lkey } else { self.fresh_key(rng, lkey) };
        self.regions += 1;
        Ok(self.insert(pd, attr, LKey(lkey), RKey(rkey)))
    }

    /// Requests on the old region fail.
    pub(crate) fn reregister(
        &mut self,
        region: &Arc<Region>,
        change: Reregister,
    ) -> Result<Arc<Region>, RegisterError> {
        if !self.is_registered(region) {
            return Err(RegisterError::Deregistered);
        }
        if region.has_windows() {
            return Err(RegisterError::InUse);
        }
        let (memory, address) =
            change.memory.unwrap_or_else(|| (region.memory.clone(), region.address));
        let attr = MrAttr { memory, address, access: change.access.unwrap_or(region.access) };
        check(&attr)?;
        region.revoke();
        Ok(self.insert(change.pd.unwrap_or(region.pd), attr, region.lkey, region.rkey))
    }

    fn insert(&mut self, pd: PdId, attr: MrAttr, lkey: LKey, rkey: RKey) -> Arc<Region> {
        let MrAttr { memory, address, access } = attr;
        let length = memory.len();
        let region = Arc::new(Region {
            pd,
            access,
            address,
            length,
            lkey,
            rkey,
            behind_driver: memory.is_behind_driver(),
            memory,
            revoked: AtomicBool::new(false),
            windows: AtomicU32::new(0),
            inside: None,
        });
        self.replace(&region);
        region
    }

    pub(crate) fn replace(&mut self, region: &Arc<Region>) {
        self.by_key.insert(region.lkey.0, region.clone());
        self.by_key.insert(region.rkey.0, region.clone());
    }

    pub(crate) fn adopt(&mut self, region: &Arc<Region>) -> Result<(), RegisterError> {
        if self.regions >= self.max {
            return Err(RegisterError::TooMany(self.max));
        }
        let is_taken = |key| {
            self.by_key.contains_key(&key) || self.windows.contains_key(&WindowId::of(RKey(key)))
        };
        if [region.lkey.0, region.rkey.0].into_iter().any(is_taken) {
            return Err(RegisterError::InUse);
        }
        self.regions += 1;
        self.replace(region);
        Ok(())
    }

    /// False if not registered.
    pub(crate) fn deregister(&mut self, region: &Region) -> bool {
        if !self.is_registered(region) {
            return false;
        }
        region.revoke();
        self.regions -= 1;
        for key in [region.lkey.0, region.rkey.0] {
            if self.by_key.remove(&key).is_some() {
                self.quarantine(key);
            }
        }
        true
    }

    pub(super) fn quarantine(&mut self, key: u32) {
        self.quarantine.push_back(key);
        self.quarantined.insert(key, ());
        if self.quarantine.len() > QUARANTINE
            && let Some(key) = self.quarantine.pop_front()
        {
            self.quarantined.remove(&key);
        }
    }

    fn is_registered(&self, region: &Region) -> bool {
        self.by_key.get(&region.lkey.0).is_some_and(|own| core::ptr::eq(&raw const **own, region))
    }

    pub(crate) fn local(&self, key: LKey) -> Option<&Arc<Region>> {
        self.by_key.get(&key.0).filter(|region| region.lkey == key)
    }

    /// Region or window of an R_Key, if allowed.
    pub(crate) fn remote(
        &self,
        key: RKey,
        user: User,
        address: u64,
        length: u64,
        needed: Access,
    ) -> Result<&Arc<Region>, AccessError> {
        let region = self.of_peer(key, user)?;
        region.check_rights(key.0, address, length, needed)?;
        if needed.intersects(Access::REMOTE_CHANGE) {
            region.announce_change(address, length);
        }
        Ok(region)
    }

    /// As `remote`, without rights and bounds.
    pub(crate) fn of_peer(&self, key: RKey, user: User) -> Result<&Arc<Region>, AccessError> {
        let region = match self.by_key.get(&key.0).filter(|region| region.rkey == key) {
            Some(region) if region.pd != user.pd => {
                return Err(AccessError::ProtectionDomain(key.0));
            }
            Some(region) => region,
            None => self.bound_window(key, user)?,
        };
        if region.is_revoked() { Err(AccessError::Deregistered(key.0)) } else { Ok(region) }
    }

    pub(super) fn nothing_at(&self, key: RKey) -> AccessError {
        if self.quarantined.contains_key(&key.0) {
            AccessError::Deregistered(key.0)
        } else if self.local(LKey(key.0)).is_some() {
            AccessError::LocalKey(key.0)
        } else if self.by_key.contains_key(&key.0.swap_bytes()) {
            AccessError::SwappedKey(key.0)
        } else {
            AccessError::UnknownKey(key.0)
        }
    }

    fn fresh_key(&self, rng: &mut ChaCha12Rng, other: u32) -> u32 {
        loop {
            let key = rng.next_u32();
            let is_window = self.windows.contains_key(&WindowId::of(RKey(key)));
            if key != 0 && key != other && !is_window && self.is_free(key) {
                return key;
            }
        }
    }

    /// True without a current or recent region.
    pub(super) fn is_free(&self, key: u32) -> bool {
        !self.by_key.contains_key(&key) && !self.quarantined.contains_key(&key)
    }
}

fn check(attr: &MrAttr) -> Result<(), RegisterError> {
    let MrAttr { memory, address, access } = attr;
    if access.intersects(Access::REMOTE_CHANGE) && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::RemoteWithoutLocalWrite);
    }
    if access.contains(Access::FLUSH_PERSISTENT) && !memory.is_persistent() {
        return Err(RegisterError::NotPersistent);
    }
    address.checked_add(memory.len()).map(|_| ()).ok_or(RegisterError::AddressOverflow)
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use core::sync::atomic::Ordering;

    use super::*;
    use crate::mem::{HeapMemory, WindowBind, WindowType};

    const PD: PdId = PdId(0);

    fn table() -> (RegionTable, ChaCha12Rng) {
        (RegionTable::new(2, false), ChaCha12Rng::from_seed([7; 32]))
    }

    fn attr(address: u64, access: Access) -> MrAttr {
        MrAttr { memory: Arc::new(HeapMemory::new(100)), address, access }
    }

    #[test]
    fn remote_access_needs_key_domain_rights_and_bounds() {
        let (mut table, mut rng) = table();
        let region = table.register(PD, attr(0x1000, Access::REMOTE_READ), &mut rng).unwrap();
        let key = region.rkey();
        let check = |key, pd, address, length, needed| {
            let user = User { pd, qpn: Qpn::new(2) };
            table.remote(key, user, address, length, needed).map(|_| ())
        };
        assert_eq!(check(key, PD, 0x1000, 100, Access::REMOTE_READ), Ok(()));
        assert_eq!(check(key, PD, 0x1064, 0, Access::REMOTE_READ), Ok(()));
        assert_eq!(
            check(RKey(region.lkey().0), PD, 0x1000, 1, Access::REMOTE_READ),
            Err(AccessError::LocalKey(region.lkey().0))
        );
        assert!(table.local(LKey(key.0)).is_none());
        let swapped = key.0.swap_bytes();
        assert_eq!(
            check(RKey(swapped), PD, 0x1000, 1, Access::REMOTE_READ),
            Err(AccessError::SwappedKey(swapped))
        );
        assert_eq!(
            check(key, PdId(1), 0x1000, 1, Access::REMOTE_READ),
            Err(AccessError::ProtectionDomain(key.0))
        );
        assert_eq!(
            check(key, PD, 0x1000, 1, Access::REMOTE_WRITE),
            Err(AccessError::Rights { key: key.0, needed: Access::REMOTE_WRITE })
        );
        for (address, length) in [
            (0xFFF, 1),
            (0x1000, 101),
            (0x1001, 100),
            (0x1065, 0),
            (u64::MAX, 2),
            (0x1000, u64::MAX),
        ] {
            assert_eq!(
                check(key, PD, address, length, Access::REMOTE_READ),
                Err(AccessError::Bounds { key: key.0, address, length, start: 0x1000, size: 100 })
            );
        }
    }

    #[test]
    fn equal_keys_serve_both_sides() {
        let (_, mut rng) = table();
        let mut table = RegionTable::new(2, true);
        let user = User { pd: PD, qpn: Qpn::new(2) };
        for _ in 0..3 {
            let all = [0, 1]
                .map(|_| table.register(PD, attr(0x1000, Access::REMOTE_READ), &mut rng).unwrap());
            let full = table.register(PD, attr(0, Access::empty()), &mut rng).map(|_| ());
            assert_eq!(full, Err(RegisterError::TooMany(2)));
            for region in all {
                let (lkey, rkey) = (region.lkey(), region.rkey());
                assert_eq!(lkey.0, rkey.0);
                assert!(table.local(lkey).is_some());
                assert!(table.remote(rkey, user, 0x1000, 1, Access::REMOTE_READ).is_ok());
                assert!(table.deregister(&region));
                assert!(table.local(lkey).is_none() && !table.is_free(lkey.0));
            }
        }
    }

    #[test]
    fn a_deregistered_key_is_dead_at_once() {
        let (mut table, mut rng) = table();
        let region = table.register(PD, attr(0, Access::LOCAL_WRITE), &mut rng).unwrap();
        table.deregister(&region);
        assert!(table.local(region.lkey()).is_none());
        let user = User { pd: PD, qpn: Qpn::new(2) };
        let refused = table.remote(region.rkey(), user, 0, 1, Access::REMOTE_READ);
        assert_eq!(refused.map(|_| ()), Err(AccessError::Deregistered(region.rkey().0)));
        assert_eq!(region.write(0, &[1]), Err(AccessError::Deregistered(region.lkey().0)));
    }

    #[test]
    fn windows_are_kept_by_the_queue_pair_that_bound_them() {
        let (mut table, mut rng) = table();
        let region =
            table.register(PD, attr(0, Access::LOCAL_WRITE | Access::MW_BIND), &mut rng).unwrap();
        let users = [1, 2].map(|qpn| User { pd: PD, qpn: Qpn::new(qpn) });
        let types = [WindowType::Type1, WindowType::Type2A, WindowType::Type2B];
        let keys = users.map(|user| {
            types.map(|window_type| {
                let rkey = table.alloc_window(PD, window_type, &mut rng);
                let bind = WindowBind {
                    rkey,
                    region: region.lkey(),
                    address: 0,
                    length: 8,
                    access: Access::REMOTE_READ,
                    zero_based: false,
                };
                table.bind(&bind, user).unwrap();
                rkey
            })
        });
        assert_eq!((table.bound.len(), region.windows.load(Ordering::Relaxed)), (4, 6));
        table.unbind_all(users[0].qpn);
        let bound = keys.map(|its| {
            its.map(|key| table.windows.get(&WindowId::of(key)).unwrap().bound.is_some())
        });
        assert_eq!(bound, [[true, false, false], [true; 3]], "those of type 1 are everybody's");
        assert_eq!(table.bound.len(), 2);
        table.invalidate(keys[1][1], users[1]).unwrap();
        assert_eq!(table.bound.len(), 1);
        keys.as_flattened().iter().for_each(|key| {
            table.dealloc_window(WindowId::of(*key)).unwrap();
        });
        assert!(table.bound.is_empty() && !region.has_windows());
    }

    #[test]
    fn refusals_at_registration() {
        let (mut table, mut rng) = table();
        let mut register =
            |address, access| table.register(PD, attr(address, access), &mut rng).map(|_| ());
        assert_eq!(register(0, Access::REMOTE_WRITE), Err(RegisterError::RemoteWithoutLocalWrite));
        assert_eq!(register(u64::MAX - 98, Access::empty()), Err(RegisterError::AddressOverflow));
        assert_eq!(register(0, Access::empty()), Ok(()));
        assert_eq!(register(0, Access::empty()), Ok(()));
        assert_eq!(register(0, Access::empty()), Err(RegisterError::TooMany(2)));
    }
}
