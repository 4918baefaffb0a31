//! Tests that rerun in their own process.

use std::{env, process::Command};

/// Name of a test, for `--exact`. A rerun of a name that does not exist would succeed.
pub(crate) fn named(name: &str) -> &str {
    let mut list = Command::new(env::current_exe().unwrap());
    let listed = list.args(["--list", "--exact", name]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.starts_with(&format!("{name}: test\n")), "no test is named {name}: {listed}");
    name
}
