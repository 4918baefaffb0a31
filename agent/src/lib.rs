//! Verbs as JSON commands: a test drives a device of another process or host.
//!
//! A line is a list of commands, its response a list of as many responses. A failed command returns
//! `{"error": NAME_OF_ERRNO, "text": REASON}` and changes nothing. [`PYTHON`] takes the same
//! commands with pyverbs.

#![cfg(target_os = "linux")]

mod bound;
mod command;
mod failure;
mod named;
mod objects;
mod translate;

pub use objects::Agent;

/// Agent for devices with an rdma-core driver, a Python program.
pub const PYTHON: &str = include_str!("../agent.py");

/// Agent in C, limited to what `roce conform` uses, for hosts without Python.
pub const C: &str = include_str!("../agent.c");
