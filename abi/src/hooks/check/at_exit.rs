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
/// Symbols may come from large files.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

unsafe extern "C" {
    fn on_exit(run: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Call before the program registers exit functions: the summary then runs last.
pub(super) fn arm() {
    // SAFETY: The library is never unloaded.
    unsafe { on_exit(report_all, ptr::null_mut()) };
}

pub(super) fn report_rest(has_failed: bool) -> usize {
    report::report_postponed();
    records::report_alive();
    report::summarize(has_failed)
}

extern "C" fn report_all(status: c_int, _: *mut c_void) {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    if !records::were_made() && !report::has_findings() {
        return;
    }
    at_end::do_within(LIMIT, move || FOUND.store(report_rest(status != 0), Ordering::SeqCst));
    if status == 0 && FOUND.load(Ordering::SeqCst) > 0 {
        // SAFETY: Only flushing remains to be done.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(STATUS);
        }
    }
}
