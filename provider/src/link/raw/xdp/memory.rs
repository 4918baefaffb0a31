//! UMEM: each chunk is the kernel's or this process's.

#![allow(unsafe_code, reason = "the kernel writes to chunks that it has")]

use std::{io, slice};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

/// The unique owner of a chunk that is in no ring.
pub(super) struct Chunk(u64);

impl Chunk {
    /// Gives the chunk to the kernel's ring; returns its offset.
    pub(super) const fn give(self) -> u64 {
        self.0
    }
}

pub(super) struct Memory {
    map: MmapRaw,
    /// Bytes of a chunk.
    pub(super) chunk: usize,
}

impl Memory {
    /// `chunk` is a power of two.
    pub(super) fn new(count: usize, chunk: usize) -> io::Result<(Self, Vec<Chunk>)> {
        let map = MmapOptions::new().len(count * chunk).populate().map_anon()?;
        // A fork would cause copies that no child needs.
        map.advise(Advice::DontFork)?;
        let chunks = (0..count).map(|index| Chunk((index * chunk) as u64)).collect();
        Ok((Self { map: map.into(), chunk }, chunks))
    }

    pub(super) fn registration(&self) -> XdpUmemReg {
        XdpUmemReg {
            addr: self.map.as_mut_ptr().expose_provenance() as u64,
            len: self.map.len() as u64,
            chunk_size: self.chunk as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    /// Takes back the chunk at a ring's offset, and returns the offset within it.
    pub(super) fn take(&self, place: u64) -> Option<(Chunk, usize)> {
        let offset = place % self.chunk as u64;
        (place < self.map.len() as u64).then_some((Chunk(place - offset), offset as usize))
    }

    pub(super) fn bytes<'a>(
        &'a self,
        chunk: &'a Chunk,
        offset: usize,
        length: usize,
    ) -> Option<&'a [u8]> {
        self.within(offset, length)?;
        // SAFETY: The bytes lie in a chunk of the mapping. Neither the kernel nor `write` writes to
        // a borrowed chunk.
        Some(unsafe { slice::from_raw_parts(self.place(chunk, offset), length) })
    }

    pub(super) fn write(&self, chunk: &mut Chunk, offset: usize, bytes: &[u8]) -> Option<()> {
        self.within(offset, bytes.len())?;
        // SAFETY: The bytes fit into a chunk of the mapping. The exclusive borrow keeps others out,
        // and `bytes` lies elsewhere.
        unsafe {
            self.place(chunk, offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Some(())
    }

    fn within(&self, offset: usize, length: usize) -> Option<()> {
        (offset.checked_add(length)? <= self.chunk).then_some(())
    }

    fn place(&self, chunk: &Chunk, offset: usize) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(chunk.0 as usize + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_within_their_chunk() {
        let (memory, mut chunks) = Memory::new(4, 4096).unwrap();
        for (index, chunk) in chunks.iter_mut().enumerate() {
            assert!(memory.write(chunk, 0, &vec![index as u8; 4096]).is_some());
            assert!(memory.write(chunk, 1, &vec![9; 4096]).is_none());
            assert!(memory.write(chunk, usize::MAX, &[9]).is_none());
        }
        for (index, chunk) in chunks.iter().enumerate() {
            assert_eq!(memory.bytes(chunk, 0, 4096), Some(&vec![index as u8; 4096][..]));
            assert_eq!(memory.bytes(chunk, 256, 3841), None);
            assert_eq!(memory.bytes(chunk, usize::MAX, 1), None);
        }
        let place = chunks.pop().unwrap().give();
        let (chunk, offset) = memory.take(place + 256).unwrap();
        assert_eq!((chunk.give(), offset), (place, 256));
        assert!(memory.take(4 * 4096).is_none());
    }
}
