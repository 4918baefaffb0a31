//! A region: memory with a key, a protection domain, rights and bounds.

use alloc::sync::Arc;
use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU32, Ordering, fence},
};

use bitflags::bitflags;
use thiserror::Error;

use super::Memory;
use crate::ids::{LKey, PdId, Qpn, RKey};

/// A user of memory: a queue pair and the protection domain that it works in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
}

bitflags! {
    /// Rights to a region, or those that a queue pair grants to its peer (`ibv_access_flags`). None
    /// by default; local reading is always allowed.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u32 {
        /// The owner's receive requests and READs may write here.
        const LOCAL_WRITE = 1;
        /// The peer may write here. A region needs `LOCAL_WRITE` with it.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may read here.
        const REMOTE_READ = 1 << 2;
        /// The peer may do atomic operations here. A region needs `LOCAL_WRITE` with it.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region. Means nothing for a queue pair or a window.
        const MW_BIND = 1 << 4;
        /// The peer may FLUSH so that what it wrote is visible to everyone
        /// (`IBV_ACCESS_FLUSH_GLOBAL`).
        const FLUSH_GLOBAL = 1 << 8;
        /// The peer may FLUSH so that what it wrote survives a loss of power
        /// (`IBV_ACCESS_FLUSH_PERSISTENT`). A region needs memory that can do that.
        const FLUSH_PERSISTENT = 1 << 9;
    }
}

impl Access {
    /// Rights that a region grants only together with `LOCAL_WRITE`, and a window only on a region
    /// with `LOCAL_WRITE` (C10-75).
    pub const REMOTE_CHANGE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);
}

/// Reason why an access to memory is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No region has this key.
    #[error("key {0:#010x} names no region")]
    UnknownKey(u32),
    /// A request of the peer names the L_Key of a region, whose R_Key is another one.
    #[error("key {0:#010x} is the L_Key of a region: the peer needs its R_Key")]
    LocalKey(u32),
    /// The region has been deregistered, or the window deallocated.
    #[error("the region of key {0:#010x} is deregistered")]
    Deregistered(u32),
    /// The region belongs to another protection domain than the queue pair.
    #[error("key {0:#010x} belongs to another protection domain")]
    ProtectionDomain(u32),
    /// The region does not grant this right.
    #[error("the region of key {key:#010x} lacks the right {needed:?}")]
    Rights {
        /// The key used.
        key: u32,
        /// The right that is missing.
        needed: Access,
    },
    /// The range is not inside the region.
    #[error(
        "{length} bytes at {address:#x} are not inside the region of key {key:#010x}, {size} bytes at \
         {start:#x}"
    )]
    Bounds {
        /// The key used.
        key: u32,
        /// First address of the range.
        address: u64,
        /// Bytes of the range.
        length: u64,
        /// First address of the region.
        start: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// The memory behind the region cannot be reached.
    #[error("the memory behind key {0:#010x} cannot be reached")]
    Fault(u32),
    /// The key belongs to a window that is bound to nothing.
    #[error("the memory window of key {0:#010x} is not bound")]
    NotBound(u32),
    /// The key belongs to a window of another queue pair.
    #[error("the memory window of key {0:#010x} is bound to another queue pair")]
    QueuePair(u32),
    /// Only windows of type 2 can be invalidated by a request.
    #[error("key {0:#010x} is not that of a memory window of type 2")]
    NotInvalidable(u32),
}

/// A memory region, or the part of one that a memory window is bound to. The adapter, and each work
/// request that uses it, hold it; its memory lives as long as any of them.
pub struct Region {
    pub(super) pd: PdId,
    pub(super) access: Access,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) lkey: LKey,
    pub(super) rkey: RKey,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) revoked: AtomicBool,
    /// Windows bound to it.
    pub(super) windows: AtomicU32,
    /// True if bytes that are written may be there later than the call ends.
    pub(super) behind_driver: bool,
    /// For a window: where it lies.
    pub(super) inside: Option<Inside>,
}

/// The place of a window in the region that it is bound to.
pub(super) struct Inside {
    pub(super) region: Arc<Region>,
    /// Bytes of the region before the window.
    pub(super) offset: u64,
}

impl Region {
    pub(crate) const fn pd(&self) -> PdId {
        self.pd
    }

    /// The owner's key.
    #[must_use]
    pub const fn lkey(&self) -> LKey {
        self.lkey
    }

    /// The peer's key.
    #[must_use]
    pub const fn rkey(&self) -> RKey {
        self.rkey
    }

    /// The first address, as work requests and peers count.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Bytes in all.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The rights.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// True if a memory window is bound to it.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.windows.load(Ordering::Relaxed) > 0
    }

    /// The memory behind the region.
    #[must_use]
    pub const fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Checks that a user of protection domain `pd` may use `length` bytes at `address` for
    /// `needed`. `key` is only for the error. No sum here can overflow: the region's end was
    /// checked at registration.
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

    /// The same without the protection domain.
    pub(super) fn check_rights(
        &self,
        key: u32,
        address: u64,
        length: u64,
        needed: Access,
    ) -> Result<(), AccessError> {
        if !self.access.contains(needed) {
            return Err(AccessError::Rights { key, needed: needed - self.access });
        }
        let inside = address
            .checked_sub(self.address)
            .is_some_and(|offset| offset <= self.length && length <= self.length - offset);
        if inside { Ok(()) } else { Err(self.beyond(key, address, length)) }
    }

    const fn beyond(&self, key: u32, address: u64, length: u64) -> AccessError {
        AccessError::Bounds { key, address, length, start: self.address, size: self.length }
    }

    /// A number for the byte at `address`, whose range was checked, that it has in every region and
    /// window that shows it.
    pub(crate) fn origin(&self, address: u64) -> u64 {
        let inside = self.inside.as_ref().map_or(0, |inside| inside.offset);
        let offset = address.wrapping_sub(self.address).wrapping_add(inside);
        self.memory.origin().wrapping_add(offset)
    }

    /// Reads bytes whose range was checked when the request was taken; the region may have been
    /// deregistered since.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), AccessError> {
        let offset = self.live_offset(self.key(), address)?;
        self.memory.read_at(offset, to).map_err(|_| AccessError::Fault(self.key()))
    }

    /// Writes bytes whose range was checked when the request was taken; the region may have been
    /// deregistered since. A program that polls the memory sees them after those of earlier
    /// packets, as with a network card.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), AccessError> {
        let offset = self.live_offset(self.key(), address)?;
        fence(Ordering::Release); // no instruction where the processor keeps stores in order
        self.memory.write_at(offset, from).map_err(|_| AccessError::Fault(self.key()))
    }

    /// True if bytes that are written may be there later than the call ends.
    pub(crate) const fn is_behind_driver(&self) -> bool {
        self.behind_driver
    }

    /// Checks that the region has not been deregistered.
    pub(crate) fn check_live(&self) -> Result<(), AccessError> {
        if self.is_revoked() { Err(AccessError::Deregistered(self.key())) } else { Ok(()) }
    }

    /// Starts to write bytes, whose range was checked.
    pub(crate) fn start_write(&self, address: u64, from: &[u8]) -> Result<u64, AccessError> {
        let offset = self.live_offset(self.key(), address)?;
        fence(Ordering::Release);
        self.memory.start_write(offset, from).map_err(|_| AccessError::Fault(self.key()))
    }

    /// True if what was started has ended.
    pub(crate) fn has_ended(&self, copy: u64) -> Result<bool, AccessError> {
        self.memory.has_ended(copy).map_err(|_| AccessError::Fault(self.key()))
    }

    /// Sets the 8-byte word at `address`, whose range was checked, to `swap` if it is `compare`;
    /// returns what it was.
    pub(crate) fn compare_swap(
        &self,
        address: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, AccessError> {
        let offset = self.live_offset(self.rkey.0, address)?;
        self.memory.compare_swap(offset, compare, swap).map_err(|_| AccessError::Fault(self.rkey.0))
    }

    /// Adds to the 8-byte word at `address`, whose range was checked; returns what it was.
    pub(crate) fn fetch_add(&self, address: u64, add: u64) -> Result<u64, AccessError> {
        let offset = self.live_offset(self.rkey.0, address)?;
        self.memory.fetch_add(offset, add).map_err(|_| AccessError::Fault(self.rkey.0))
    }

    /// Sets the 8-byte word at `address`, whose range was checked, at once.
    pub(crate) fn store(&self, address: u64, value: u64) -> Result<(), AccessError> {
        let offset = self.live_offset(self.rkey.0, address)?;
        self.memory.store_u64(offset, value).map_err(|_| AccessError::Fault(self.rkey.0))
    }

    /// Makes what peers wrote to a range visible to everyone, and lasting if `persistent`. The
    /// range was checked.
    pub(crate) fn flush(
        &self,
        address: u64,
        length: u64,
        persistent: bool,
    ) -> Result<(), AccessError> {
        let offset = self.live_offset(self.rkey.0, address)?;
        fence(Ordering::SeqCst);
        if !persistent {
            return Ok(());
        }
        self.memory.persist(offset, length).map_err(|_| AccessError::Fault(self.rkey.0))
    }

    /// The key that people know it by; a window has only one.
    fn key(&self) -> u32 {
        if self.inside.is_some() { self.rkey.0 } else { self.lkey.0 }
    }

    /// Offset of an address in the memory.
    fn live_offset(&self, key: u32, address: u64) -> Result<u64, AccessError> {
        if self.is_revoked() {
            return Err(AccessError::Deregistered(key));
        }
        let offset =
            address.checked_sub(self.address).ok_or_else(|| self.beyond(key, address, 0))?;
        // no overflow: the window ends within the region
        Ok(offset + self.inside.as_ref().map_or(0, |inside| inside.offset))
    }

    /// True if it has been deregistered: the window itself, or the region that it is bound to.
    pub(super) fn is_revoked(&self) -> bool {
        let revoked = |region: &Self| region.revoked.load(Ordering::Relaxed);
        revoked(self) || self.inside.as_ref().is_some_and(|inside| revoked(&inside.region))
    }

    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("lkey", &self.lkey)
            .field("rkey", &self.rkey)
            .field("address", &self.address)
            .field("length", &self.length)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
