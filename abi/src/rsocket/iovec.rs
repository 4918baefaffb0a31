//! Scattered bytes of a program.

use std::ops::Range;

use libc::{c_int, iovec};
use roce_provider::{copy_from_program, copy_to_program, transport::mem::MemoryFault};

use crate::errno::{Errno, Result};
use crate::rule::Rule;

#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pieces: *const iovec,
    number: usize,
    offset: usize,
}

impl Cursor {
    /// Also returns the total bytes.
    ///
    /// # Safety
    /// `pieces` has `number` elements.
    pub(super) unsafe fn new(pieces: *const iovec, number: usize) -> Result<(Self, usize)> {
        let mut bytes = 0_usize;
        for index in 0..number {
            let length = (*pieces.add(index)).iov_len;
            bytes = bytes
                .checked_add(length)
                .filter(|sum| *sum <= isize::MAX as usize)
                .ok_or(Rule::SocketArgument)?;
        }
        Ok((Self { pieces, number, offset: 0 }, bytes))
    }

    pub(super) fn number(number: c_int) -> Result<usize> {
        usize::try_from(number)
            .ok()
            .filter(|number| *number <= 1024)
            .ok_or(Errno::of(Rule::SocketArgument))
    }

    /// Passes the next `bytes` bytes to `copy` in contiguous parts, each with its place among them.
    unsafe fn walk(
        &mut self,
        bytes: usize,
        mut copy: impl FnMut(*mut u8, Range<usize>) -> Result<(), MemoryFault>,
    ) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < bytes {
            if self.number == 0 {
                return Err(MemoryFault);
            }
            let piece = *self.pieces;
            let here = (bytes - done).min(piece.iov_len - self.offset);
            if here == 0 {
                (self.pieces, self.number, self.offset) = (self.pieces.add(1), self.number - 1, 0);
                continue;
            }
            copy(piece.iov_base.cast::<u8>().wrapping_add(self.offset), done..done + here)?;
            self.offset += here;
            done += here;
        }
        Ok(())
    }

    /// # Safety
    /// The list is unchanged.
    pub(super) unsafe fn skip(&mut self, bytes: usize) {
        let _ = self.walk(bytes, |_, _| Ok(())); // as many exist
    }

    /// # Safety
    /// The pieces are readable.
    pub(super) unsafe fn read(&mut self, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.walk(to.len(), |from, part| {
            let to = &mut to[part];
            copy_from_program(from, to.as_mut_ptr(), to.len())
        })
    }

    /// # Safety
    /// The pieces are writable.
    pub(super) unsafe fn write(&mut self, from: &[u8]) -> Result<(), MemoryFault> {
        self.walk(from.len(), |to, part| copy_to_program(to, &from[part]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_passed_over_whole_and_in_part() {
        let (mut first, mut last) = (*b"abc", *b"defg");
        let piece =
            |bytes: &mut [u8]| iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let pieces = [piece(&mut first), piece(&mut []), piece(&mut last)];
        // SAFETY: Memory of the test.
        unsafe {
            let (mut cursor, bytes) = Cursor::new(pieces.as_ptr(), 3).unwrap();
            assert_eq!(bytes, 7);
            let mut copied = [0; 5];
            cursor.read(&mut copied).unwrap();
            assert_eq!(copied, *b"abcde");
            assert_eq!(cursor.read(&mut copied), Err(MemoryFault), "there are only two more");

            let (mut cursor, _) = Cursor::new(pieces.as_ptr(), 3).unwrap();
            cursor.write(b"12345").unwrap();
        }
        assert_eq!((&first, &last), (b"123", b"45fg"));
        let huge = [iovec { iov_base: std::ptr::null_mut(), iov_len: usize::MAX }; 2];
        // SAFETY: Nothing is read there.
        assert!(unsafe { Cursor::new(huge.as_ptr(), 2) }.is_err());
        assert!(Cursor::number(-1).is_err() && Cursor::number(1025).is_err());
    }
}
