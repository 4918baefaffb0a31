//! The C interface, as programs see it that are linked with it.

mod common;
#[path = "../../tests/own_test/mod.rs"]
mod own_test;
mod program;
mod programs;
mod random;
#[path = "../../tests/watchdog/mod.rs"]
mod watchdog;
