//! Shared memory with sealed length: truncation would kill its users.

use std::{fs::File, io, os::fd::AsFd};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    process::{Resource, getrlimit},
};

use super::ensure;
use crate::region::MmapMemory;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// True if RLIMIT_FSIZE permits files of this length: exceeding it kills the process (SIGXFSZ).
pub(super) fn is_allowed(length: u64) -> bool {
    getrlimit(Resource::Fsize).current.is_none_or(|limit| length <= limit)
}

pub(super) fn is_refused() -> bool {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let refusals = [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::INVAL];
    rustix::fs::memfd_create("roce", flags).is_err_and(|error| refusals.contains(&error))
}

/// The name is for people.
pub(super) fn create(name: &str, length: u64) -> io::Result<File> {
    ensure(is_allowed(length), io::ErrorKind::FileTooLarge)?;
    let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, length)?;
    rustix::fs::fcntl_add_seals(&memory, SEALS)?;
    Ok(memory.into())
}

/// Maps the first bytes of sealed memory. Errors: [`io::ErrorKind::InvalidData`] if the memory is
/// shorter or unsealed.
pub(super) fn map(memory: &File, length: u64) -> io::Result<MmapMemory> {
    check(memory, length)?;
    MmapMemory::shared(memory, length as usize)
}

pub(super) fn check(memory: &File, length: u64) -> io::Result<()> {
    let is_sealed = rustix::fs::fcntl_get_seals(memory.as_fd())?.contains(SEALS);
    ensure(is_sealed && memory.metadata()?.len() >= length, io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_be_cut_short_is_refused() {
        assert!(map(&create("test", 4096).unwrap(), 4096).is_ok());
        assert!(map(&create("test", 4095).unwrap(), 4096).is_err());
        let open = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert!(map(&open.into(), 4096).is_err());
        assert!(map(&File::open("/dev/null").unwrap(), 4096).is_err());
    }
}
