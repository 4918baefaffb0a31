//! Checks for mistakes that go unnoticed by luck.
//!
//! With `ROCE_CHECK`, [`requests`] has requests and completions, [`watch`] the adapter's writes,
//! [`records`] all objects.
//!
//! Lock order: [`requests`], held while posting; an engine; [`watch`], taken by the adapter.
//! Findings under the last two are reported after release.

mod at_exit;
pub(crate) mod devices;
mod finding;
pub(crate) mod forks;
mod form;
pub(crate) mod keys;
pub(crate) mod mapped;
pub(crate) mod order;
pub(crate) mod python;
pub(crate) mod records;
mod report;
pub(crate) mod request;
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
pub(crate) use report::{emit, emit_here};
pub(crate) use stack::Stack;

use super::switch::Hook;

pub(crate) fn at_load() {
    roce_provider::report::with_callers(report::CALLERS);
    python::at_load();
    if form::ASKED.is_some() {
        Hook::Checks.switch_on();
        form::report_seed();
        at_exit::arm();
        forks::watch();
    }
}
