//! Pages from the kernel, copied by the [routines] where available.

#![allow(unsafe_code, reason = "a mapping becomes atomic words, or the other side of a copy")]

use std::{fs::File, io, sync::atomic::AtomicU64};

use memmap2::{Advice, MmapOptions, MmapRaw};
use roce_transport::mem::{Memory, MemoryFault, read_words, write_words};

use super::{guard::done, routines};

/// Zeroed pages without references into them.
#[derive(Debug)]
pub struct MmapMemory {
    map: MmapRaw,
    len: usize,
}

impl MmapMemory {
    /// Maps and populates `len` zero bytes, so the first packet does not wait.
    ///
    /// # Errors
    /// Errors of the kernel, usually out of memory.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(MmapOptions::new().populate(), len)
    }

    /// Like [`new`](Self::new), with pages on first use.
    pub fn on_demand(len: usize) -> io::Result<Self> {
        Self::map(MmapOptions::new().no_reserve_swap(), len)
    }

    /// Maps the first `len` bytes of a file, which must never be shorter.
    pub(crate) fn shared(memory: &File, len: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(len).map_raw(memory)?, len })
    }

    fn map(options: &mut MmapOptions, len: usize) -> io::Result<Self> {
        let whole_words = len.next_multiple_of(8).max(8);
        Ok(Self { map: options.len(whole_words).map_anon()?.into(), len })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.map.as_ptr() as u64
    }

    fn slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, readable, writable, `map.len()` bytes long, and
        // lives as long as `self`; all bit patterns are valid. This process accesses it only
        // through these atomics and copies in assembly, by whole words except at the edges. Other
        // processes may change it at any time, as atomics allow.
        unsafe {
            std::slice::from_raw_parts(
                self.map.as_mut_ptr().cast::<AtomicU64>(),
                self.map.len() / 8,
            )
        }
    }
}

impl Memory for MmapMemory {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        Some(&self.slice()[..self.len / 8])
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(offset, to.len())?;
        if !routines::EXIST {
            return read_words(self.slice(), offset, to);
        }
        let from = self.map.as_ptr() as usize + offset as usize;
        // SAFETY: writes `to`; the range was just checked
        done(unsafe { routines::copy_in(to.as_mut_ptr(), from, to.len()) })
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.check(offset, from.len())?;
        if !routines::EXIST {
            return write_words(self.slice(), offset, from);
        }
        let to = self.map.as_ptr() as usize + offset as usize;
        // SAFETY: reads `from`; the range was just checked
        done(unsafe { routines::copy_out(to, from.as_ptr(), from.len()) })
    }

    fn prefetch(&self, offset: u64, length: u64) -> Result<(), MemoryFault> {
        let length = usize::try_from(length).map_err(|_| MemoryFault)?;
        self.check(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        match self.map.advise_range(Advice::PopulateWrite, offset as usize, length) {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(MemoryFault),
            _ => Ok(()), // unsupported: pages come on first use
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_every_place() {
        const SPACE: usize = 160;
        let memory = MmapMemory::new(SPACE).unwrap();
        let bytes: Vec<u8> = (1..=SPACE as u8).collect();
        for start in 0..40 {
            for length in 0..=SPACE - start - 8 {
                memory.write_at(0, &[0; SPACE]).unwrap();
                memory.write_at(start as u64, &bytes[..length]).unwrap();
                let mut all = [0xFF; SPACE];
                memory.read_at(0, &mut all).unwrap();
                let end = start + length;
                assert_eq!(&all[start..end], &bytes[..length]);
                assert!(all[..start].iter().chain(&all[end..]).all(|byte| *byte == 0));
                let mut part = vec![0xFF; length + 1];
                memory.read_at(start as u64, &mut part[..length]).unwrap();
                assert_eq!((&part[..length], part[length]), (&bytes[..length], 0xFF));
            }
        }
    }

    #[test]
    fn bytes_come_back_and_the_end_is_the_end() {
        let memory = MmapMemory::new(13).unwrap();
        memory.write_at(3, b"0123456789").unwrap();
        let mut bytes = [0; 13];
        memory.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\x000123456789");
        assert_eq!(memory.write_at(4, b"0123456789"), Err(MemoryFault));
        assert_eq!(MmapMemory::new(0).unwrap().write_at(0, b"x"), Err(MemoryFault));
    }
}
