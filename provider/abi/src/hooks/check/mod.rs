//! Checks of what programs do that works by luck: memory that is touched while the adapter has it,
//! queues that can overrun, wake-ups that can be lost, objects that are used after they are
//! destroyed or never are.
//!
//! Switched on by `ROCE_CHECK`. Then calls that move data note here what is posted and what has
//! completed, and regions have memory that tells what the adapter writes ([`watch`]); calls that
//! make and destroy objects are noted in [`records`]. Off, nothing is noted, and the memory is the
//! same as if there were no checks.
//!
//! Three locks: that of [`requests`], which is held while a request is posted; that of an engine;
//! that of [`watch`], which the adapter takes under its own. They are taken in this order. What is
//! found under the last two is told later, by the thread that has given them back.

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
