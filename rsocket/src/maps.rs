//! Program memory mapped for the peer.

use roce_provider::MemoryRegion;

/// Each at most once in the peer's table.
#[derive(Debug, Default)]
pub(super) struct Maps(Vec<Mapped>);

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) address: usize,
    pub(super) length: usize,
    /// Index in the peer's table if the peer may write it.
    pub(super) index: Option<usize>,
    pub(super) _region: MemoryRegion,
}

impl Maps {
    pub(super) fn free(&self, entries: usize) -> Option<usize> {
        (0..entries).find(|index| self.0.iter().all(|mapped| mapped.index != Some(*index)))
    }

    pub(super) fn add(&mut self, mapped: Mapped) {
        self.0.push(mapped);
    }

    pub(super) fn find(&self, address: usize, length: usize) -> Option<&Mapped> {
        self.0.iter().find(|mapped| (mapped.address, mapped.length) == (address, length))
    }

    pub(super) fn remove(&mut self, address: usize, length: usize) {
        let at = self.0.iter().position(|one| (one.address, one.length) == (address, length));
        at.map(|at| self.0.swap_remove(at));
    }
}
