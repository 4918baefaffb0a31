//! Process exit: closes everything, like a kernel.

use std::time::Duration;

use roce_provider::{any_devices, end_devices};

use crate::{at_end::do_within, cm, rsocket};

/// Longest delay: only a held lock, or undelivered data for a process at the same address, takes
/// time.
const DEVICES: Duration = Duration::from_millis(200);

/// Runs after the handlers and destructors of program and libraries.
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
