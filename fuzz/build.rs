//! Declares `cfg(fuzzing)`, which only `cargo fuzz` sets.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
}
