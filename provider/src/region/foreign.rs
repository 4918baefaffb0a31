#![allow(
    unsafe_code,
    reason = "the constructors' promises are the callers', and this is where they are used"
)]

use memmap2::MmapRaw;
use roce_transport::mem::{Access, Memory, MemoryFault};
use thiserror::Error;

use super::{faults, guard, reach, routines};

/// Memory to register is missing or lacks access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("the memory at {address:#x} cannot be {}", if *.write { "read and written" } else { "read" })]
pub struct Unreachable {
    /// Address of the fault, as far as known.
    pub address: u64,
    /// Write access was needed too.
    pub write: bool,
}

/// Program memory, reached by address, never by reference.
///
/// Accesses fail with [`MemoryFault`] if it is unmapped, protected, or a truncated file. A later
/// mapping at the address belongs to the region: deregister before unmapping.
///
/// Eight-byte operations need addresses divisible by 8.
#[derive(Debug)]
pub struct ForeignMemory {
    address: usize,
    len: usize,
    /// Own mapping of the range; `None`: the program's.
    _map: Option<MmapRaw>,
}

impl ForeignMemory {
    /// Covers `length` readable bytes at `pointer`, writable if `access` has a write right.
    ///
    /// Pages in a short range.
    ///
    /// # Errors
    /// [`Unreachable`] (`EFAULT`).
    ///
    /// # Safety
    /// While this value lives (a region and its requests hold it), the range may be read at any
    /// time. It may be written if registered with a write right, or through this value. No Rust
    /// reference is used meanwhile whose guarantees that breaks, and nothing relies on these bytes
    /// for soundness.
    pub unsafe fn new(
        pointer: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, Unreachable> {
        let address = pointer.expose_provenance();
        let write = access.intersects(Access::LOCAL_WRITE | Access::REMOTE_CHANGE);
        let unreachable = |address: usize| Unreachable { address: address as u64, write };
        let end = address.checked_add(length).ok_or(unreachable(usize::MAX))?;
        reach::check(address..end, write).map_err(unreachable)?;
        // SAFETY: the caller promises the same
        Ok(unsafe { Self::on_demand(pointer, length) })
    }

    /// Covers the range unchecked; accesses to missing pages fail.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[must_use]
    pub unsafe fn on_demand(pointer: *mut u8, length: usize) -> Self {
        faults::are_in_front(true);
        Self { address: pointer.expose_provenance(), len: length, _map: None }
    }

    /// Keeps the range's mapping while this value lives.
    pub(super) fn keeping(self, map: MmapRaw) -> Self {
        Self { _map: Some(map), ..self }
    }

    /// Address at `offset`, if `length` bytes from there are inside.
    fn at(&self, offset: u64, length: usize) -> Result<usize, MemoryFault> {
        self.check(offset, length)?;
        let address = self.address.checked_add(offset as usize).ok_or(MemoryFault)?;
        address.checked_add(length).map(|_| address).ok_or(MemoryFault)
    }
}

impl Memory for ForeignMemory {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn origin(&self) -> u64 {
        self.address as u64
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        guard::read(self.at(offset, to.len())?, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        let address = self.at(offset, from.len())?;
        // SAFETY: promised to the constructor
        unsafe { guard::write(address, from) }
    }

    fn load_u64(&self, offset: u64) -> Result<u64, MemoryFault> {
        // SAFETY: a fault is survived
        guard::word(self.at(offset, 8)?, |word, found| unsafe { routines::load(word, found) })
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryFault> {
        // SAFETY: writing is promised to the constructor; a fault is survived
        let store = |word, _: &mut u64| unsafe { routines::store(word, value) };
        guard::word(self.at(offset, 8)?, store).map(drop)
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        guard::word(self.at(offset, 8)?, |word, found| {
            // SAFETY: as above
            unsafe { routines::compare_swap(word, compare, swap, found) }
        })
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemoryFault> {
        // SAFETY: as above
        let fetch_add = |word, found: &mut u64| unsafe { routines::fetch_add(word, add, found) };
        guard::word(self.at(offset, 8)?, fetch_add)
    }

    fn prefetch(&self, offset: u64, length: u64) -> Result<(), MemoryFault> {
        let length = usize::try_from(length).map_err(|_| MemoryFault)?;
        let start = self.at(offset, length)?;
        reach::populate_or_check(start..start + length, false).map_err(|_| MemoryFault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{MmapMemory, kernel, pipe};

    struct Routines {
        name: &'static str,
        read: fn(usize, &mut [u8]) -> Result<(), MemoryFault>,
        write: unsafe fn(usize, &[u8]) -> Result<(), MemoryFault>,
    }

    const ROUTINES: Routines =
        Routines { name: "routines", read: guard::read, write: guard::write };
    const KERNEL: Routines = Routines { name: "kernel", read: kernel::read, write: kernel::write };
    const PIPE: Routines = Routines { name: "pipe", read: pipe::read, write: pipe::write };

    fn numbers(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + at / 251) as u8 | 1).collect()
    }

    fn is_exact(ways: &Routines, memory: &MmapMemory, offset: usize, skew: usize, length: usize) {
        let size = memory.len() as usize;
        let address = memory.address() as usize + offset;
        let data = numbers(skew + length);
        let mut expected = vec![0; size];
        expected[offset..][..length].copy_from_slice(&data[skew..]);
        memory.write_at(0, &vec![0; size]).unwrap();
        // SAFETY: this test's memory, without references
        unsafe { (ways.write)(address, &data[skew..]).unwrap() };
        let mut whole = vec![0; size];
        memory.read_at(0, &mut whole).unwrap();
        assert!(whole == expected, "{} write {length} bytes at {offset} from {skew}", ways.name);
        let mut back = vec![0; skew + length + 20];
        (ways.read)(address, &mut back[skew..skew + length]).unwrap();
        let is_spared = back[..skew].iter().chain(&back[skew + length..]).all(|&byte| byte == 0);
        assert!(
            back[skew..skew + length] == data[skew..] && is_spared,
            "{} read {length} at {offset} to {skew}",
            ways.name
        );
    }

    fn are_exact(ways: &Routines, step: usize) {
        let (small, large) = (MmapMemory::new(400).unwrap(), MmapMemory::new(70_000).unwrap());
        let mut state = 1_u32;
        let mut random = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for offset in 0..32 {
            for length in (0..300).step_by(step) {
                is_exact(ways, &small, offset, (offset * 5 + length * 3) % 16, length);
            }
        }
        for _ in 0..200 {
            let offset = random(70_000);
            let length = random(70_000 - offset);
            is_exact(ways, &large, offset, random(64), length);
        }
    }

    #[test]
    fn routines_copy_exactly_and_spare_the_neighbours() {
        assert!(!routines::EXIST || faults::are_in_front(true));
        are_exact(&ROUTINES, 1);
    }

    #[test]
    fn the_kernel_copies_exactly_and_spares_the_neighbours() {
        are_exact(&KERNEL, 7);
    }

    #[test]
    fn a_pipe_copies_exactly_and_spares_the_neighbours() {
        are_exact(&PIPE, 7);
    }

    #[test]
    fn what_is_missing_is_an_error_for_the_kernel() {
        let page = rustix::param::page_size();
        let memory = MmapMemory::new(2 * page).unwrap();
        let start = memory.address() as usize;
        let second = (start + page) as *mut libc::c_void;
        // SAFETY: a page of this mapping, without references
        assert_eq!(unsafe { libc::mprotect(second, page, libc::PROT_NONE) }, 0);
        for Routines { name, read, write } in [KERNEL, PIPE] {
            for (offset, length) in [(page, 1), (page - 4, 8), (page, 5000), (page - 100, 200)] {
                let mut bytes = vec![1; length];
                // SAFETY: this test's memory, without references
                let written = unsafe { write(start + offset, &bytes) };
                assert_eq!(written, Err(MemoryFault), "{name} {offset} {length}");
                assert_eq!(read(start + offset, &mut bytes), Err(MemoryFault), "{name}");
            }
            let mut bytes = [2; 4];
            read(start + page - 4, &mut bytes).unwrap();
            assert_ne!(bytes, [2; 4], "{name}");
        }
    }

    /// Bytes before the missing page are copied; none after.
    #[test]
    fn across_a_page_that_is_missing() {
        let page = rustix::param::page_size();
        let memory = MmapMemory::new(3 * page).unwrap();
        let start = memory.address() as usize;
        let protect = |rights| {
            let second = (start + page) as *mut libc::c_void;
            // SAFETY: a page of this mapping, without references
            assert_eq!(unsafe { libc::mprotect(second, page, rights) }, 0);
        };
        protect(libc::PROT_NONE);
        // SAFETY: nothing else uses this memory
        let foreign = unsafe { ForeignMemory::on_demand(start as *mut u8, 3 * page) };
        for before in 0..200 {
            for inside in [1, 2, 7, 8, 9, 15, 16, 17, 64, 300] {
                let offset = page - before;
                foreign.write_at(offset as u64, &vec![0; before]).unwrap();
                let data = numbers(before + inside);
                assert_eq!(
                    foreign.write_at(offset as u64, &data),
                    Err(MemoryFault),
                    "{before} and {inside} bytes"
                );
                let mut back = vec![0; before];
                foreign.read_at(offset as u64, &mut back).unwrap();
                assert_eq!(back, data[..before]);
                assert_eq!(
                    foreign.read_at(offset as u64, &mut vec![0; before + inside]),
                    Err(MemoryFault)
                );
                // from the missing page into the next
                let offset = 2 * page - inside;
                assert_eq!(foreign.write_at(offset as u64, &data), Err(MemoryFault));
                assert_eq!(
                    foreign.read_at(offset as u64, &mut vec![0; before + inside]),
                    Err(MemoryFault)
                );
            }
        }
        foreign.write_at(2 * page as u64, &[1; 4096]).unwrap();
        protect(libc::PROT_READ | libc::PROT_WRITE);
        foreign.write_at(page as u64 - 7, &[1; 4096]).unwrap();
    }
}
