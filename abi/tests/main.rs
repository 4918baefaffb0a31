//! The C interface as linked programs see it.

mod common;
#[path = "../../tests/own_test/mod.rs"]
mod own_test;
mod program;
mod programs;
mod random;
#[path = "../../tests/watchdog/mod.rs"]
mod watchdog;
