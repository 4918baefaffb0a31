//! libFuzzer's entry.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(roce_fuzz::capture::capture(data)));

#[cfg(not(fuzzing))]
fn main() {}
