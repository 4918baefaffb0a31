//! Time slice of the background thread.

#![allow(unsafe_code, reason = "scheduling attributes have no safe interface")]

use std::{io, mem};

/// Shortest slice of Linux 6.12 and later, in ns.
const SLICE: u64 = 100_000;

/// Requests short time slices for this thread (`sched_setattr`). A waking thread with a shorter
/// slice preempts at once, instead of after milliseconds; its share stays equal. Older kernels and
/// other policies ignore slices.
pub(super) fn shorten() {
    if let Ok(mut attributes) = attributes()
        && [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attributes.sched_policy.cast_signed())
    {
        attributes.sched_runtime = SLICE;
        // SAFETY: the kernel reads as many bytes as the structure states
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

fn attributes() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: all members are numbers
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_slice_is_shortened_and_nothing_else_changes() {
        thread::spawn(|| {
            let Ok(before) = attributes() else { return }; // Linux emulations may lack it
            shorten();
            let after = attributes().unwrap();
            let rest = |of: &libc::sched_attr| (of.sched_policy, of.sched_nice, of.sched_priority);
            assert_eq!(rest(&after), rest(&before));
            assert!([SLICE, before.sched_runtime].contains(&after.sched_runtime));
        })
        .join()
        .unwrap();
    }
}
