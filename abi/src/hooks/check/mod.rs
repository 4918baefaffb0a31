//! Checks for mistakes that go unnoticed by luck: memory touched while the adapter owns it,
//! overruns of queues, lost wake-ups, use after destruction, leaks.
//!
//! With `ROCE_CHECK`, calls that move data record requests and completions, memory records the
//! adapter's writes ([`watch`]), and [`records`] has all objects.
//!
//! Locks, in this order: that of [`requests`], held while posting; an engine's; that of [`watch`],
//! which the adapter takes. Findings under the last two are reported after release.

mod at_exit;
pub(crate) mod devices;
mod finding;
pub(crate) mod forks;
mod form;
pub(crate) mod keys;
mod mapped;
pub(crate) mod order;
pub(crate) mod python;
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
pub(crate) use report::emit;
pub(crate) use stack::Stack;

pub(crate) fn at_load() {
    roce_provider::report::with_callers(report::caller);
    python::at_load();
    if form::switch_on() {
        form::report_seed();
        at_exit::arm();
        forks::watch();
    }
}
