//! Checks of programs for mistakes that work by luck. These are memory touched while the adapter
//! has it, queues that can overrun, lost wake-ups, objects used after they are destroyed, and
//! leaks.
//!
//! `ROCE_CHECK` turns them on. Then calls that move data record what is posted and what has
//! completed. Regions have memory that shows what the adapter writes ([`watch`]). Calls that create
//! and destroy objects are recorded in [`records`]. Otherwise nothing is recorded, and memory is
//! the ordinary one.
//!
//! Three locks: that of [`requests`], which is held while a request is posted; that of an engine;
//! that of [`watch`], which the adapter takes under its own. They are taken in this order. Findings
//! under the last two are reported later, by the thread that released them.

mod at_exit;
pub(crate) mod devices;
mod finding;
pub(crate) mod forks;
mod form;
pub(crate) mod keys;
pub(crate) mod order;
pub(crate) mod records;
mod report;
pub(crate) mod requests;
mod sarif;
pub(crate) mod settings;
pub(crate) mod single;
mod stack;
mod suppressions;
mod threads;
pub(crate) mod waits;
pub(crate) mod wake_ups;
pub(crate) mod watch;
pub(crate) mod watcher;

pub(crate) use finding::{Finding, Kind};
pub(crate) use form::is_on;
pub(crate) use report::tell;
pub(crate) use stack::Stack;

/// To be called when the library is loaded.
pub(crate) fn at_load() {
    roce_provider::report::with_callers(report::caller);
    if form::switch_on() {
        form::tell_seed();
        at_exit::arm();
        forks::watch();
    }
}
