use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use roce_transport::mem::{Memory, MemoryFault};

use super::cuda::{CopyStream, Cuda};
use crate::{region::Unreachable, variables};

/// Set once GPU memory is found.
static USED: AtomicBool = AtomicBool::new(false);

/// GPU memory, copied by the driver that the program has loaded. An access waits for its copy, and
/// fails if the GPU fails, or if the memory or its context is gone.
///
/// Atomics are atomic among those of this process, not with GPU kernels.
#[derive(Debug)]
pub struct GpuMemory {
    copies: Arc<CopyStream>,
    address: u64,
    length: u64,
}

impl GpuMemory {
    /// Finds `length` bytes at `address`; `None` if not in GPU memory.
    ///
    /// # Errors
    /// [`Unreachable`] (`EFAULT`) if the range only begins in GPU memory.
    pub fn find(address: u64, length: usize) -> Result<Option<Self>, Unreachable> {
        let length = length as u64;
        let (Some(driver), Some(end)) = (driver(), address.checked_add(length)) else {
            return Ok(None);
        };
        let copies =
            driver.find(address..end).map_err(|address| Unreachable { address, write: true })?;
        Ok(copies.map(|copies| {
            USED.store(true, Ordering::Relaxed);
            Self { copies, address, length }
        }))
    }

    /// Like [`find`](Self::find), but free until GPU memory is found.
    pub fn find_used(address: u64, length: usize) -> Result<Option<Self>, Unreachable> {
        if USED.load(Ordering::Relaxed) { Self::find(address, length) } else { Ok(None) }
    }

    /// Address at `offset`, if `length` bytes from there are inside.
    fn at(&self, offset: u64, length: usize) -> Result<u64, MemoryFault> {
        self.check(offset, length)?;
        Ok(self.address + offset)
    }

    /// Address of an aligned word.
    fn word_at(&self, offset: u64) -> Result<u64, MemoryFault> {
        self.at(offset, 8).ok().filter(|address| address.is_multiple_of(8)).ok_or(MemoryFault)
    }
}

impl Memory for GpuMemory {
    fn len(&self) -> u64 {
        self.length
    }

    fn origin(&self) -> u64 {
        self.address
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.copies.read(self.at(offset, to.len())?, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.copies.write(self.at(offset, from.len())?, from)
    }

    fn is_behind_driver(&self) -> bool {
        true
    }

    fn start_write(&self, offset: u64, from: &[u8]) -> Result<u64, MemoryFault> {
        self.copies.start_write(self.at(offset, from.len())?, from)
    }

    fn has_ended(&self, copy: u64) -> Result<bool, MemoryFault> {
        self.copies.has_ended(copy)
    }

    fn load_u64(&self, offset: u64) -> Result<u64, MemoryFault> {
        let mut word = [0; 8];
        self.copies.read(self.word_at(offset)?, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryFault> {
        self.copies.write(self.word_at(offset)?, &value.to_ne_bytes())
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let address = self.word_at(offset)?;
        self.copies.exchange(address, |found| if found == compare { swap } else { found })
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemoryFault> {
        self.copies.exchange(self.word_at(offset)?, |found| found.wrapping_add(add))
    }
}

fn driver() -> Option<&'static Cuda> {
    static IS_OFF: OnceLock<bool> = OnceLock::new();
    let is_off = *IS_OFF.get_or_init(|| variables::is_off(variables::GPU));
    if is_off { None } else { Cuda::loaded() }
}

/// True if GPU memory can be registered: the program has loaded the driver, and `ROCE_GPU` is not
/// 0.
#[must_use]
pub fn gpus_work() -> bool {
    driver().is_some()
}
