//! Replaces [`routines`](super::routines) on other architectures: the kernel accesses foreign
//! memory, without eight-byte operations.

#![allow(unsafe_code, reason = "the same interface")]
#![allow(clippy::missing_const_for_fn, reason = "the same interface")]

use std::ffi::c_void;

pub(super) const EXIST: bool = false;

pub(super) unsafe fn copy_in(_to: *mut u8, _from: usize, _length: usize) -> usize {
    1
}

pub(super) unsafe fn copy_out(_to: usize, _from: *const u8, _length: usize) -> usize {
    1
}

pub(super) unsafe fn load(_word: usize, _found: *mut u64) -> usize {
    1
}

pub(super) unsafe fn store(_word: usize, _value: u64) -> usize {
    1
}

pub(super) unsafe fn compare_swap(
    _word: usize,
    _compare: u64,
    _swap: u64,
    _found: *mut u64,
) -> usize {
    1
}

pub(super) unsafe fn fetch_add(_word: usize, _add: u64, _found: *mut u64) -> usize {
    1
}

pub(super) unsafe fn recover(_context: *mut c_void) -> bool {
    false
}
