//! The end of the process: what the program has left open ends, as it does when a kernel cleans up
//! after a program.

use std::time::Duration;

use roce_provider::{any_devices, end_devices};

use crate::{at_end::do_within, cm, rsocket};

/// Longest time that the process waits for its devices. It takes no time, unless a thread holds a
/// lock, or another process at one of the addresses is to have something that it has not come for
/// yet.
const DEVICES: Duration = Duration::from_millis(200);

/// Runs after the handlers and destructors of the program, and of the libraries that use this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    if rsocket::exit::any() {
        do_within(rsocket::exit::LIMIT, rsocket::exit::end_all);
    }
    if cm::exit::any() {
        do_within(cm::exit::LIMIT, cm::exit::end_all);
    }
    if any_devices() {
        do_within(DEVICES, end_devices);
    }
}
