use alloc::boxed::Box;
use core::sync::atomic::AtomicU64;

use super::{
    Memory, MemoryFault,
    words::{read_words, write_words},
};

/// Zeroed heap memory with relaxed atomic words.
#[derive(Debug)]
pub struct HeapMemory {
    words: Box<[AtomicU64]>,
    len: u64,
}

impl HeapMemory {
    /// `len` zero bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { words: (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), len: len as u64 }
    }
}

impl Memory for HeapMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        Some(&self.words)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(offset, to.len())?;
        read_words(&self.words, offset, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.check(offset, from.len())?;
        write_words(&self.words, offset, from)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    #[test]
    fn every_offset_and_length_reads_back_and_spares_its_neighbours() {
        for offset in 0..20 {
            for len in 0..40 {
                let memory = HeapMemory::new(64);
                memory.write_at(0, &[0xEE; 64]).unwrap();
                let data: Vec<u8> = (1..=len as u8).collect();
                memory.write_at(offset, &data).unwrap();
                let mut expected = vec![0xEE; 64];
                expected[offset as usize..][..len].copy_from_slice(&data);
                let mut whole = vec![0; 64];
                memory.read_at(0, &mut whole).unwrap();
                assert_eq!(whole, expected, "offset {offset}, length {len}");
                let mut part = vec![0; len];
                memory.read_at(offset, &mut part).unwrap();
                assert_eq!(part, data);
            }
        }
    }

    #[test]
    fn out_of_bounds_is_a_fault() {
        let memory = HeapMemory::new(5);
        assert_eq!(memory.write_at(4, &[0; 2]), Err(MemoryFault));
        assert_eq!(memory.read_at(u64::MAX, &mut [0; 2]), Err(MemoryFault));
        assert_eq!(memory.write_at(5, &[]), Ok(()));
    }
}
