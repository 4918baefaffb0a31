//! Captures, explained.

#[path = "../../transport/tests/common/mod.rs"]
mod common;
mod explain;
