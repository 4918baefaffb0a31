//! Fuzz targets of roce, each a function of bytes.
//!
//! A body panics when an invariant breaks. It runs under libFuzzer (`fuzz_targets/`), and on its
//! corpus under `cargo test` (`tests/replay.rs`).

pub mod ancillary;
pub mod capture;
pub mod explain;
pub mod faults;
pub mod flows;
pub mod frames;
mod input;
pub mod mad;
pub mod packets;
pub mod parse;
pub mod share;
pub mod shm;
pub mod verbs;
