//! Process exit: delivers data, notifies peers.

use std::{thread, time::Duration};

use roce_rsocket::Deadline;

use super::table;

/// Longest delay; a kernel would continue.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn any() -> bool {
    !table::is_empty()
}

pub(crate) fn end_all() {
    let all: Vec<_> =
        table::all().into_iter().filter(|entry| entry.socket.is_of_this_process()).collect();
    for entry in &all {
        let _ = entry.socket.shutdown(true, true); // may be unconnected
    }
    let deadline = Deadline::after(Some(LIMIT / 2));
    while !deadline.is_over() && all.iter().any(|entry| !entry.socket.is_sent()) {
        thread::sleep(PAUSE);
    }
    for entry in all {
        table::remove(entry.socket.number());
    }
}
