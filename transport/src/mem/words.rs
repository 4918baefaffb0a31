//! Bytes in atomic words: relaxed loads and stores of whole words, compare-and-swap of parts.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Memory, MemoryFault};

/// Copies from `offset` into `to`; [`MemoryFault`] outside.
///
/// # Errors
/// [`MemoryFault`] outside.
pub fn read_words(words: &[AtomicU64], offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
    let Span { mut words, skip } = span(words, offset, to.len())?;
    let head = if skip == 0 { 0 } else { (8 - skip).min(to.len()) };
    let (first, rest) = to.split_at_mut(head);
    if head > 0
        && let Some((word, others)) = words.split_first()
    {
        first.copy_from_slice(&bytes_of(word)[skip..skip + head]);
        words = others;
    }
    let (chunks, tail) = rest.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = bytes_of(word);
    }
    if let Some(word) = words.get(chunks.len()) {
        tail.copy_from_slice(&bytes_of(word)[..tail.len()]);
    }
    Ok(())
}

/// Copies `from` to `offset`; [`MemoryFault`] outside.
///
/// # Errors
/// [`MemoryFault`] outside.
pub fn write_words(words: &[AtomicU64], offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
    let Span { mut words, skip } = span(words, offset, from.len())?;
    let head = if skip == 0 { 0 } else { (8 - skip).min(from.len()) };
    let (first, rest) = from.split_at(head);
    if head > 0
        && let Some((word, others)) = words.split_first()
    {
        merge(word, skip, first);
        words = others;
    }
    let (chunks, tail) = rest.as_chunks::<8>();
    for (chunk, word) in chunks.iter().zip(words) {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if let Some(word) = words.get(chunks.len()).filter(|_| !tail.is_empty()) {
        merge(word, 0, tail);
    }
    Ok(())
}

/// `skip`: bytes before the range.
struct Span<'a> {
    words: &'a [AtomicU64],
    skip: usize,
}

fn span(words: &[AtomicU64], offset: u64, len: usize) -> Result<Span<'_>, MemoryFault> {
    let start = usize::try_from(offset).map_err(|_| MemoryFault)?;
    let end = start.checked_add(len).ok_or(MemoryFault)?;
    let words = words.get(start / 8..end.div_ceil(8).max(start / 8)).ok_or(MemoryFault)?;
    Ok(Span { words, skip: start % 8 })
}

fn bytes_of(word: &AtomicU64) -> [u8; 8] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

fn merge(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let mut value = [0; 8];
    let mut mask = [0; 8];
    value[skip..skip + bytes.len()].copy_from_slice(bytes);
    mask[skip..skip + bytes.len()].fill(0xFF);
    let (value, mask) = (u64::from_ne_bytes(value), u64::from_ne_bytes(mask));
    // the closure never refuses
    let _ =
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !mask | value));
}

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
