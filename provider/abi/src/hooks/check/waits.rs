//! Endless waits: for acknowledgements the program never makes, or events that nothing can cause.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use roce_provider::calls::Call;

use super::{
    finding::{Finding, Kind},
    form::is_on,
    report, requests,
    stack::Stack,
    threads::{self, Doing, Thread},
    wake_ups,
};
use crate::sync::{Changes, Mutex};

/// Time until a wait is suspect; programs acknowledge sooner or never.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Threads in this library that need another thread to act, and when that was last found.
static ENDLESS: Mutex<BTreeMap<u32, Instant>> = Mutex::new(BTreeMap::new());

/// Returns the first result of `attempt`, retried after each change. After [`SOON`] it reports
/// `what` as `kind`.
pub(crate) fn for_acknowledgement<R>(
    changes: &Changes,
    attempt: impl Fn() -> Option<R>,
    kind: Kind,
    what: impl FnOnce() -> String,
) -> R {
    if is_on() {
        if let Some(result) = changes.wait_within(SOON, &attempt) {
            return result;
        }
        report::tell(&Finding { kind, what: what(), stacks: vec![("called", Stack::here())] });
    }
    changes.wait_for(attempt)
}

/// Runs each [`SOON`] of a wait. `endless` says why only another thread can end it; reported once
/// if none acts.
pub(crate) fn look(endless: &dyn Fn() -> Option<String>, is_told: &mut bool) {
    let _call = Call::begin();
    let this = threads::this();
    let Some(what) = endless() else { return left() };
    ENDLESS.lock().insert(this, Instant::now());
    if !*is_told && nobody_acts(this) {
        *is_told = true;
        tell(what, ("waits", Stack::here()));
    }
}

/// Runs when a wait has ended.
pub(crate) fn left() {
    ENDLESS.lock().remove(&threads::this());
}

pub(super) fn tell(what: String, stack: (&'static str, Stack)) {
    report::tell(&Finding { kind: Kind::EndlessWait, what, stacks: vec![stack] });
}

/// True if no other thread acts.
pub(super) fn nobody_acts(but: u32) -> bool {
    let Some(threads) = threads::all() else { return false };
    let others: Vec<_> = threads.into_iter().filter(|thread| thread.id != but).collect();
    let number = others.len();
    // the waits were checked after the others last acted
    let endless = ENDLESS.lock();
    let waits = |id: &u32| endless.get(id).is_some_and(|at| at.elapsed() < SOON);
    let is_stuck = |thread: &Thread| {
        waits(&thread.id)
            || match thread.doing() {
                Doing::WaitsForThread => true,
                Doing::WaitsFor { descriptors, is_limited: false } => {
                    wake_ups::endless_for(&descriptors, requests::have_completed).is_some()
                }
                _ => false,
            }
    };
    others.iter().all(is_stuck) && threads::still(others).len() == number
}
