//! Tests that run again in a process of their own.

use std::{env, process::Command};

/// The name of a test of this program, for `--exact`. Panics if there is no such test: a process
/// that is told to run it would run nothing, and end well.
pub(crate) fn named(name: &str) -> &str {
    let mut list = Command::new(env::current_exe().unwrap());
    let listed = list.args(["--list", "--exact", name]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.starts_with(&format!("{name}: test\n")), "no test is named {name}: {listed}");
    name
}
