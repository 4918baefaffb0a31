//! Lists of pointers for programs.

use crate::errno;

/// A list that ends with a null pointer, to be freed by `free`; null, with `ENOMEM`, if there is no
/// memory.
pub(crate) fn allocate<T>(pointers: &[*mut T]) -> *mut *mut T {
    // SAFETY: One more pointer than is written, which stays null.
    unsafe {
        let list: *mut *mut T = libc::calloc(pointers.len() + 1, size_of::<*mut T>()).cast();
        if list.is_null() {
            errno::set(libc::ENOMEM); // not explained: that would take memory
        } else {
            list.copy_from_nonoverlapping(pointers.as_ptr(), pointers.len());
        }
        list
    }
}
