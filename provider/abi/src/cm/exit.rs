//! The end of the process: peers are told, as they are when a kernel cleans up after a program.

use std::time::Duration;

use super::{id::Id, registry};
use crate::{at_end, object::Object};

/// Longest time that the process waits at its end. Ending takes no time, unless a thread holds a lock.
const LIMIT: Duration = Duration::from_millis(200);

/// Runs after the handlers and destructors of the program, and of the libraries that use this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Ends all connections, and rejects requests that wait for an answer.
extern "C" fn at_exit() {
    if registry::any_ids() {
        at_end::do_within(LIMIT, end_all);
    }
}

/// Ends all ids, of which programs still hold the pointers. Peers get
/// nothing from a forked child's copies of its parent's ids.
fn end_all() {
    for id in registry::pointers() {
        // SAFETY: It was there, and a program that destroys ids in its last moments, in other
        // threads, is at fault.
        let cm = unsafe { Id::get(id) }.map(Id::take_cm);
        drop(cm);
    }
}
