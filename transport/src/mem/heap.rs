//! Memory of our own: a boxed slice of atomic words.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Memory, MemoryFault};

/// Zeroed memory on the heap, accessed word by word with relaxed atomics.
#[derive(Debug)]
pub struct HeapMemory {
    words: Box<[AtomicU64]>,
    len: u64,
}

impl HeapMemory {
    /// `len` bytes of zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { words: (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), len: len as u64 }
    }

    fn load(&self, word: usize) -> [u8; 8] {
        self.words[word].load(Ordering::Relaxed).to_ne_bytes()
    }

    fn range(&self, offset: u64, len: usize) -> Result<usize, MemoryFault> {
        let end = offset.checked_add(len as u64).ok_or(MemoryFault)?;
        if end > self.len { Err(MemoryFault) } else { Ok(offset as usize) }
    }
}

impl Memory for HeapMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        let offset = self.range(offset, to.len())?;
        let (mut word, skip) = (offset / 8, offset % 8);
        let head = if skip == 0 { 0 } else { (8 - skip).min(to.len()) };
        let (first, rest) = to.split_at_mut(head);
        if head > 0 {
            first.copy_from_slice(&self.load(word)[skip..skip + head]);
            word += 1;
        }
        let whole = rest.len() / 8;
        let mut chunks = rest.chunks_exact_mut(8);
        for (chunk, word) in (&mut chunks).zip(&self.words[word..]) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let tail = chunks.into_remainder();
        if !tail.is_empty() {
            tail.copy_from_slice(&self.load(word + whole)[..tail.len()]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        let offset = self.range(offset, from.len())?;
        let (mut word, skip) = (offset / 8, offset % 8);
        let head = if skip == 0 { 0 } else { (8 - skip).min(from.len()) };
        let (first, rest) = from.split_at(head);
        if head > 0 {
            merge(&self.words[word], skip, first);
            word += 1;
        }
        let chunks = rest.chunks_exact(8);
        let tail = chunks.remainder();
        for (chunk, word) in chunks.zip(&self.words[word..]) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            merge(&self.words[word + rest.len() / 8], 0, tail);
        }
        Ok(())
    }
}

/// Puts `bytes` at `skip` into a word, leaving its other bytes as another writer may be setting them.
fn merge(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let mut value = [0; 8];
    let mut mask = [0; 8];
    value[skip..skip + bytes.len()].copy_from_slice(bytes);
    mask[skip..skip + bytes.len()].fill(0xFF);
    let (value, mask) = (u64::from_ne_bytes(value), u64::from_ne_bytes(mask));
    // only the loop's own closure can refuse, and it never does
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !mask | value));
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
