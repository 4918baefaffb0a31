//! The end of the process, for the counters of devices that the program has not closed.

use std::time::Duration;

use roce_provider::{environment, publish_counters};

use crate::at_end;

/// Longest time that the process waits at its end. Publishing takes no time, unless a thread holds a
/// lock.
const LIMIT: Duration = Duration::from_millis(200);

/// Runs after the handlers and destructors of the program, and of the libraries that use this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = publish_rest;

/// Has all counters published where they outlive the process.
extern "C" fn publish_rest() {
    if environment::value(environment::SYSFS).is_some() {
        at_end::do_within(LIMIT, publish_counters);
    }
}
