//! Closes everything at exit, like a kernel.

use std::time::Duration;

use roce_provider::{any_devices, end_devices};

use crate::{at_end::do_within, cm, rsocket};

/// Only a held lock, or data for a process at the same address, takes time.
const DEVICES: Duration = Duration::from_millis(200);

/// Runs after all other exit handlers and destructors.
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
