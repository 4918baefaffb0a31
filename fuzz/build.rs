//! Tells the compiler that `cfg(fuzzing)` exists: `cargo fuzz` sets it, and nothing else does.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
}
