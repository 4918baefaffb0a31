use crate::errno;

/// Null-terminated list to `free`; null with `ENOMEM`.
pub(crate) fn allocate<T>(pointers: &[*mut T]) -> *mut *mut T {
    // SAFETY: Room for one more pointer.
    unsafe {
        let list: *mut *mut T = libc::calloc(pointers.len() + 1, size_of::<*mut T>()).cast();
        if list.is_null() {
            errno::set(libc::ENOMEM); // unexplained: that would allocate
        } else {
            list.copy_from_nonoverlapping(pointers.as_ptr(), pointers.len());
        }
        list
    }
}
