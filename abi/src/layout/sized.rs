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

/// Reads the first `length` bytes over `rest`; `None` from null.
///
/// # Safety
/// `from` is null or has `length` bytes, and any bytes are a `T`.
pub(crate) unsafe fn read_sized<T>(
    from: *const T,
    mut rest: T,
    length: impl FnOnce(*const T) -> usize,
) -> Option<T> {
    if from.is_null() {
        return None;
    }
    let length = length(from).min(size_of::<T>());
    (&raw mut rest).cast::<u8>().copy_from_nonoverlapping(from.cast(), length);
    Some(rest)
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
        let read = unsafe { read_sized((&raw const *short).cast(), [9u32; 4], |_| 8) };
        assert_eq!(read, Some([5, 6, 9, 9]));
    }
}
