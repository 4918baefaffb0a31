//! Process exit: notifies peers, as a kernel would.

use std::time::Duration;

use super::{id::Id, registry};
use crate::objects::object::Object;

/// Only a held lock takes time.
pub(crate) const LIMIT: Duration = Duration::from_millis(200);

pub(crate) fn any() -> bool {
    registry::any_ids()
}

/// Ends connections and rejects requests; the program keeps the ids. A forked child's copies send
/// nothing.
pub(crate) fn end_all() {
    for id in registry::pointers() {
        // SAFETY: The id is registered; a program must not destroy ids during exit.
        let cm = unsafe { Id::get(id) }.map(Id::take_cm);
        drop(cm);
    }
}
