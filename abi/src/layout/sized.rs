//! Structures of older headers may be shorter: copy only their bytes, and form no reference to a
//! full structure.

/// Truncates or zero-fills.
///
/// # Safety
/// `to` has `room` bytes.
pub(crate) unsafe fn copy_sized<T>(from: &T, to: *mut T, room: usize) {
    to.cast::<u8>().write_bytes(0, room);
    to.cast::<u8>()
        .copy_from_nonoverlapping(std::ptr::from_ref(from).cast(), room.min(size_of::<T>()));
}

/// Reads the first `length` bytes over `rest`.
///
/// # Safety
/// `from` has `length` bytes, and any bytes are a `T`.
pub(crate) unsafe fn read_sized<T>(from: *const T, length: usize, mut rest: T) -> T {
    (&raw mut rest).cast::<u8>().copy_from_nonoverlapping(from.cast(), length.min(size_of::<T>()));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_callers_stays_as_it_is() {
        let mut place = [7u32; 4];
        // SAFETY: There is room.
        unsafe { copy_sized(&[1u32, 2, 3, 4], &raw mut place, 8) };
        assert_eq!(place, [1, 2, 7, 7]);
        let short = Box::new([5u32, 6]); // out of bounds
        // SAFETY: Eight bytes are there.
        let read = unsafe { read_sized((&raw const *short).cast::<[u32; 4]>(), 8, [9; 4]) };
        assert_eq!(read, [5, 6, 9, 9]);
    }
}
