use std::{fs::File, io, os::unix::fs::FileExt};

use roce_transport::mem::{Memory, MemoryFault};

/// File as memory; at worst an access fails.
///
/// [`Memory::persist`] makes writes durable, so peers may have `FLUSH_PERSISTENT`. Atomics fail.
#[derive(Debug)]
pub struct FileMemory {
    file: File,
    len: u64,
}

impl FileMemory {
    /// Uses the first `len` bytes of a readable and writable file, extended if shorter.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new(file: File, len: u64) -> io::Result<Self> {
        if file.metadata()?.len() < len {
            file.set_len(len)?;
        }
        Ok(Self { file, len })
    }
}

impl Memory for FileMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(offset, to.len())?;
        self.file.read_exact_at(to, offset).map_err(|_| MemoryFault)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.check(offset, from.len())?;
        self.file.write_all_at(from, offset).map_err(|_| MemoryFault)
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn persist(&self, _offset: u64, _length: u64) -> Result<(), MemoryFault> {
        self.file.sync_data().map_err(|_| MemoryFault)
    }
}
