//! libFuzzer's entry to [`roce_fuzz::explain::explain`]; empty in an ordinary build.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| roce_fuzz::explain::explain(data));

#[cfg(not(fuzzing))]
fn main() {}
