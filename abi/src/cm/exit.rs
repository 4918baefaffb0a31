//! The end of the process: peers are told, as they are when a kernel cleans up after a program.

use std::time::Duration;

use super::{id::Id, registry};
use crate::objects::object::Object;

/// Longest time that the process waits. Ending takes no time, unless a thread holds a lock.
pub(crate) const LIMIT: Duration = Duration::from_millis(200);

/// True if there are any ids.
pub(crate) fn any() -> bool {
    registry::any_ids()
}

/// Ends all connections, and rejects requests that wait for an answer: ends all ids, of which
/// programs still hold the pointers. Peers get nothing from a forked child's copies of its parent's
/// ids.
pub(crate) fn end_all() {
    for id in registry::pointers() {
        // SAFETY: It was there, and a program that destroys ids in its last moments, in other
        // threads, is at fault.
        let cm = unsafe { Id::get(id) }.map(Id::take_cm);
        drop(cm);
    }
}
