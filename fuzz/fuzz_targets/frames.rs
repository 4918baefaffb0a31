//! libFuzzer's entry to [`roce_fuzz::frames::frames`]; empty in an ordinary build.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(roce_fuzz::frames::frames(data)));

#[cfg(not(fuzzing))]
fn main() {}
