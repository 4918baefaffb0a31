//! libFuzzer's entry to [`roce_fuzz::faults::faults`]. Without it, in an ordinary build, the
//! program does nothing.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(roce_fuzz::faults::faults(data)));

#[cfg(not(fuzzing))]
fn main() {}
