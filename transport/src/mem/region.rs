use alloc::sync::Arc;
use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU32, Ordering, fence},
};

use bitflags::bitflags;

use super::{Memory, MemoryFault};
use crate::{
    ids::{LKey, PdId, Qpn, RKey},
    named::errors,
};

/// A queue pair with its protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
}

bitflags! {
    /// Rights to a region, or of a queue pair's peer (`ibv_access_flags`). Local reads need none.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u32 {
        /// Writes by receives and READs.
        const LOCAL_WRITE = 1;
        /// Writes by the peer.
        const REMOTE_WRITE = 1 << 1;
        /// Reads by the peer.
        const REMOTE_READ = 1 << 2;
        /// Atomics by the peer.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows on a region.
        const MW_BIND = 1 << 4;
        /// FLUSH to visibility (`IBV_ACCESS_FLUSH_GLOBAL`).
        const FLUSH_GLOBAL = 1 << 8;
        /// FLUSH to persistence (`IBV_ACCESS_FLUSH_PERSISTENT`), which regions must support.
        const FLUSH_PERSISTENT = 1 << 9;
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

impl Access {
    /// Rights that need the region's `LOCAL_WRITE`, also in windows (C10-75).
    pub const REMOTE_CHANGE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);
}

errors! {
    /// Reason for denying access.
    #[non_exhaustive]
    AccessError {
        UnknownKey(u32) "key {0:#010x} names no region";
        LocalKey(u32) "key {0:#010x} is the L_Key of a region; send the peer its R_Key";
        SwappedKey(u32) "key {0:#010x} names no region; byte-swapped, it is that of one";
        /// Deregistered region or deallocated window.
        Deregistered(u32) "the region of key {0:#010x} is deregistered";
        ProtectionDomain(u32) "key {0:#010x} belongs to another protection domain";
        Rights { key: u32, needed: Access }
            "the region of key {key:#010x} lacks the access right {needed}";
        Bounds { key: u32, address: u64, length: u64, start: u64, size: u64 }
            "{length} bytes at {address:#x} are not inside the region of key {key:#010x}, {size} \
             bytes at {start:#x}";
        Fault(u32) "the memory of key {0:#010x} is not accessible";
        NotBound(u32) "the memory window of key {0:#010x} is not bound";
        QueuePair(u32) "the memory window of key {0:#010x} is bound to another queue pair";
        NotInvalidable(u32) "key {0:#010x} is not of a memory window of type 2";
    }
}

/// Memory region or bound window, kept alive by adapter and work requests.
#[derive(derive_more::Debug)]
#[debug("Region {{ {lkey:?}, {rkey:?}, {access:?}, {length} bytes at {address:#x}, .. }}")]
pub struct Region {
    pub(super) pd: PdId,
    pub(super) access: Access,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) lkey: LKey,
    pub(super) rkey: RKey,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) revoked: AtomicBool,
    /// Bound windows.
    pub(super) windows: AtomicU32,
    /// Written bytes may arrive after the call.
    pub(super) behind_driver: bool,
    pub(super) inside: Option<Inside>,
}

/// Place of a window.
pub(super) struct Inside {
    pub(super) region: Arc<Region>,
    /// Bytes before the window.
    pub(super) offset: u64,
}

impl Region {
    pub(crate) const fn pd(&self) -> PdId {
        self.pd
    }

    /// L_Key.
    #[must_use]
    pub const fn lkey(&self) -> LKey {
        self.lkey
    }

    /// R_Key.
    #[must_use]
    pub const fn rkey(&self) -> RKey {
        self.rkey
    }

    /// First address.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Rights.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// True if windows are bound.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.windows.load(Ordering::Relaxed) > 0
    }

    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// `key` is for the error.
    pub(crate) fn check(
        &self,
        key: u32,
        pd: PdId,
        address: u64,
        length: u64,
        needed: Access,
    ) -> Result<(), AccessError> {
        if self.is_revoked() {
            return Err(AccessError::Deregistered(key));
        }
        if self.pd != pd {
            return Err(AccessError::ProtectionDomain(key));
        }
        self.check_rights(key, address, length, needed)
    }

    /// Rights and bounds only.
    pub(crate) fn check_rights(
        &self,
        key: u32,
        address: u64,
        length: u64,
        needed: Access,
    ) -> Result<(), AccessError> {
        let inside = address
            .checked_sub(self.address)
            .is_some_and(|offset| offset <= self.length && length <= self.length - offset);
        if !inside {
            // before rights: the key may be another region's
            return Err(self.beyond(key, address, length));
        }
        if !self.access.contains(needed) {
            return Err(AccessError::Rights { key, needed: needed - self.access });
        }
        Ok(())
    }

    const fn beyond(&self, key: u32, address: u64, length: u64) -> AccessError {
        AccessError::Bounds { key, address, length, start: self.address, size: self.length }
    }

    /// Number of a byte, equal in all regions and windows.
    pub(crate) fn origin(&self, address: u64) -> u64 {
        self.memory.origin().wrapping_add(self.offset(address))
    }

    pub(super) fn announce_change(&self, address: u64, length: u64) {
        self.memory.peer_changes(self.offset(address), length);
    }

    /// The caller has checked the range.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), AccessError> {
        self.at(self.key(), address, |offset| self.memory.read_at(offset, to))
    }

    /// Polling programs see packets in order, as with a network card.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), AccessError> {
        self.at(self.key(), address, |offset| {
            fence(Ordering::Release); // no instruction where the processor keeps stores in order
            self.memory.write_at(offset, from)
        })
    }

    pub(crate) const fn is_behind_driver(&self) -> bool {
        self.behind_driver
    }

    pub(crate) fn check_live(&self) -> Result<(), AccessError> {
        if self.is_revoked() { Err(AccessError::Deregistered(self.key())) } else { Ok(()) }
    }

    pub(crate) fn start_write(&self, address: u64, from: &[u8]) -> Result<u64, AccessError> {
        self.at(self.key(), address, |offset| {
            fence(Ordering::Release);
            self.memory.start_write(offset, from)
        })
    }

    pub(crate) fn has_ended(&self, copy: u64) -> Result<bool, AccessError> {
        self.memory.has_ended(copy).map_err(|_| AccessError::Fault(self.key()))
    }

    pub(crate) fn compare_swap(
        &self,
        address: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, AccessError> {
        self.at(self.rkey.0, address, |offset| self.memory.compare_swap(offset, compare, swap))
    }

    pub(crate) fn fetch_add(&self, address: u64, add: u64) -> Result<u64, AccessError> {
        self.at(self.rkey.0, address, |offset| self.memory.fetch_add(offset, add))
    }

    pub(crate) fn store(&self, address: u64, value: u64) -> Result<(), AccessError> {
        self.at(self.rkey.0, address, |offset| self.memory.store_u64(offset, value))
    }

    pub(crate) fn flush(
        &self,
        address: u64,
        length: u64,
        persistent: bool,
    ) -> Result<(), AccessError> {
        self.at(self.rkey.0, address, |offset| {
            fence(Ordering::SeqCst);
            if persistent { self.memory.persist(offset, length) } else { Ok(()) }
        })
    }

    /// For errors.
    fn key(&self) -> u32 {
        if self.inside.is_some() { self.rkey.0 } else { self.lkey.0 }
    }

    /// Accesses live memory; `key` is for errors.
    #[inline]
    fn at<T>(
        &self,
        key: u32,
        address: u64,
        access: impl FnOnce(u64) -> Result<T, MemoryFault>,
    ) -> Result<T, AccessError> {
        if self.is_revoked() {
            return Err(AccessError::Deregistered(key));
        }
        if address < self.address {
            return Err(self.beyond(key, address, 0));
        }
        access(self.offset(address)).map_err(|_| AccessError::Fault(key))
    }

    /// No overflow: windows end within their region.
    fn offset(&self, address: u64) -> u64 {
        let inside = self.inside.as_ref().map_or(0, |inside| inside.offset);
        address.wrapping_sub(self.address).wrapping_add(inside)
    }

    /// Includes the region of a window.
    pub(super) fn is_revoked(&self) -> bool {
        let revoked = |region: &Self| region.revoked.load(Ordering::Relaxed);
        revoked(self) || self.inside.as_ref().is_some_and(|inside| revoked(&inside.region))
    }

    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }
}
