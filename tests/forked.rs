//! Children that run a part of a test.

use std::{
    os::unix::process::ExitStatusExt,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitStatus,
};

/// The child exits with the result of `run`, or 101 if it panics.
pub(crate) fn fork(run: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child needs no other thread, and never returns into the test
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let number = catch_unwind(AssertUnwindSafe(run)).unwrap_or(101);
        // SAFETY: ends the child at once
        unsafe { libc::_exit(number) };
    }
    assert!(pid > 0);
    pid
}

pub(crate) fn wait(pid: i32) -> ExitStatus {
    let mut status = 0;
    // SAFETY: the status lives until the call returns
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    ExitStatus::from_raw(status)
}
