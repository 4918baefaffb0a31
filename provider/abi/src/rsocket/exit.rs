//! The end of the process: what was sent gets to the peers, and they are told.

use std::{thread, time::Duration};

use roce_provider::rsocket::Deadline;

use super::table;
use crate::at_end;

/// Longest time that the process waits at its end. A kernel would go on by itself.
const LIMIT: Duration = Duration::from_secs(1);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs after the handlers and destructors of the program, and of the libraries that use this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end_rsockets;

extern "C" fn end_rsockets() {
    if !table::is_empty() {
        at_end::do_within(LIMIT, end_all);
    }
}

fn end_all() {
    let all: Vec<_> =
        table::all().into_iter().filter(|entry| entry.socket.is_of_this_process()).collect();
    for entry in &all {
        let _ = entry.socket.shutdown(true, true); // it may not be connected
    }
    let deadline = Deadline::after(Some(LIMIT / 2));
    while !deadline.is_over() && all.iter().any(|entry| !entry.socket.is_sent()) {
        thread::sleep(PAUSE);
    }
    for entry in all {
        table::remove(entry.socket.number());
    }
}
