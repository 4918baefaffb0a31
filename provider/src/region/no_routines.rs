//! Replaces [`routines`](super::routines) on other architectures: the kernel accesses foreign
//! memory, without eight-byte operations.

#![allow(unsafe_code, reason = "the same interface")]
#![allow(clippy::missing_const_for_fn, reason = "the same interface")]

use std::ffi::c_void;

pub(super) const EXIST: bool = false;

macro_rules! missing {
    ($($name:ident($($argument:ty),+) -> $result:ty = $value:literal;)+) => {
        $(pub(super) unsafe fn $name($(_: $argument),+) -> $result {
            $value
        })+
    };
}

missing! {
    copy_in(*mut u8, usize, usize) -> usize = 1;
    copy_out(usize, *const u8, usize) -> usize = 1;
    load(usize, *mut u64) -> usize = 1;
    store(usize, u64) -> usize = 1;
    compare_swap(usize, u64, u64, *mut u64) -> usize = 1;
    fetch_add(usize, u64, *mut u64) -> usize = 1;
    recover(*mut c_void) -> bool = false;
}
