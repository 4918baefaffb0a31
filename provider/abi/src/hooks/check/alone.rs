//! Whether a thread of the program's is the only one: what it waits for no other can bring.

use std::{fs, process};

/// Start of the names of this library's threads.
const OWN: &str = "roce";

/// True if the program has no other thread, and no timer whose signal may end the wait. It is false
/// if that cannot be told.
pub(super) fn is_alone() -> bool {
    // SAFETY: All bytes zero are a value of it.
    let mut timer: libc::itimerval = unsafe { std::mem::zeroed() };
    // SAFETY: It writes to a place of ours.
    let known = unsafe { libc::getitimer(libc::ITIMER_REAL, &raw mut timer) } == 0;
    if !known || (timer.it_value.tv_sec, timer.it_value.tv_usec) != (0, 0) {
        return false;
    }
    let main = process::id().to_string();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let mut number = 0;
    for thread in threads.filter_map(Result::ok) {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let is_main = thread.file_name().to_str() == Some(&main);
        if is_main && name.starts_with(OWN) {
            return false; // its threads have its name
        }
        number += usize::from(is_main || !name.starts_with(OWN));
    }
    number == 1
}
