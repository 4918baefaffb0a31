//! Process exit: summary and status.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::{records, report};
use crate::at_end;

/// Replaces exit status 0 after a finding.
const STATUS: c_int = 99;
/// Longest delay: symbols may come from large files.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

unsafe extern "C" {
    fn on_exit(run: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Registers the summary before the program's functions: it runs after them and all destructors.
pub(super) fn arm() {
    // SAFETY: The function is there as long as the process is: the library is never unloaded.
    unsafe { on_exit(report_all, ptr::null_mut()) };
}

pub(super) fn report_rest() -> usize {
    report::report_postponed();
    records::report_alive();
    report::summarize()
}

extern "C" fn report_all(status: c_int, _: *mut c_void) {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    if !records::were_made() && !report::has_findings() {
        return;
    }
    at_end::do_within(LIMIT, || FOUND.store(report_rest(), Ordering::SeqCst));
    if status == 0 && FOUND.load(Ordering::SeqCst) > 0 {
        // SAFETY: What the program has written is flushed first, as it would be afterwards; there
        // is nothing else that is still to be done.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(STATUS);
        }
    }
}
