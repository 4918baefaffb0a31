//! The end of the process: what was found in all, and its exit status.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::{records, report};
use crate::at_end;

/// Exit status of a program that has ended with 0, and of which something was found.
const STATUS: c_int = 99;
/// Longest time that the process waits at its end: names may be looked up in large files.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

unsafe extern "C" {
    fn on_exit(run: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Has the end told. Registered before the program's own functions, it runs after them, and after
/// the destructors of the program and of its libraries.
pub(super) fn arm() {
    // SAFETY: The function is there as long as the process is: the library is never unloaded.
    unsafe { on_exit(tell_all, ptr::null_mut()) };
}

/// Tells what is left to tell, and what was found in all, the number of findings.
pub(super) fn tell_rest() -> usize {
    report::tell_postponed();
    records::tell_alive();
    report::summarize()
}

extern "C" fn tell_all(status: c_int, _: *mut c_void) {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    if !records::were_made() && !report::has_told() {
        return;
    }
    at_end::do_within(LIMIT, || FOUND.store(tell_rest(), Ordering::SeqCst));
    if status == 0 && FOUND.load(Ordering::SeqCst) > 0 {
        // SAFETY: What the program has written is flushed first, as it would be afterwards; there
        // is nothing else that is still to be done.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(STATUS);
        }
    }
}
