use std::sync::{Arc, atomic::AtomicU64};

use roce_transport::mem::{Memory, MemoryFault};

pub struct View {
    pub memory: Arc<dyn Memory>,
    /// A multiple of eight.
    pub start: u64,
    pub length: u64,
}

impl Memory for View {
    fn len(&self) -> u64 {
        self.length
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        self.memory.words()?.get(self.start as usize / 8..(self.start + self.length) as usize / 8)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(offset, to.len())?;
        self.memory.read_at(self.start + offset, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.check(offset, from.len())?;
        self.memory.write_at(self.start + offset, from)
    }
}
