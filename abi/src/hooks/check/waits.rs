use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use roce_provider::calls::{self, Call};

use super::{
    Finding, Kind, Stack, is_on, report,
    threads::{self, Activity, Thread},
    wake_ups,
};
use crate::sync::{Changes, Mutex};

/// Programs acknowledge sooner or never.
pub(crate) const SUSPICION: Duration = Duration::from_secs(1);

/// Threads that wait for others, and when last seen.
static ENDLESS: Mutex<BTreeMap<u32, Instant>> = Mutex::new(BTreeMap::new());
/// Threads that wait for another's batch, and what to report.
static BATCHES: Mutex<BTreeMap<u32, (Finding, Started)>> = Mutex::new(BTreeMap::new());

/// Where a batch was last started.
pub(crate) type Started = Arc<Mutex<Stack>>;

/// Retries `attempt` after each change; after [`SUSPICION`], reports `what`.
pub(crate) fn for_acknowledgement<R>(
    changes: &Changes,
    attempt: impl Fn() -> Option<R>,
    kind: Kind,
    what: impl FnOnce() -> String,
) -> R {
    if is_on() {
        if let Some(result) = changes.wait_within(SUSPICION, &attempt) {
            return result;
        }
        report::emit_here(kind, "called", what());
    }
    changes.wait_for(attempt)
}

/// Runs after each [`SUSPICION`]. `endless` says why only another thread can end the wait.
pub(crate) fn check_endless(endless: &dyn Fn() -> Option<String>, is_reported: &mut bool) {
    let _call = Call::begin();
    let this = threads::this();
    let Some(what) = endless() else { return left() };
    ENDLESS.lock().insert(this, Instant::now());
    if !*is_reported && nobody_acts(this) {
        *is_reported = true;
        report::emit_here(Kind::EndlessWait, "waits", what);
    }
}

pub(crate) fn left() {
    ENDLESS.lock().remove(&threads::this());
}

/// Scope of this thread's wait for another's batch.
pub(crate) struct ForBatch(u32);

/// The watcher reports `found` if nobody ends the wait.
pub(crate) fn for_batch(found: Finding, started: Started) -> ForBatch {
    let _call = Call::begin();
    let this = threads::this();
    BATCHES.lock().insert(this, (found, started));
    ForBatch(this)
}

impl Drop for ForBatch {
    fn drop(&mut self) {
        let _call = Call::begin();
        BATCHES.lock().remove(&self.0);
    }
}

pub(super) fn batch_of(thread: u32) -> Option<Finding> {
    let (mut found, started) = BATCHES.lock().get(&thread).cloned()?;
    found.stacks.push(("started", started.lock().clone()));
    Some(found)
}

/// Call without locks. The threads are seen outside the call: a fork waits for its end.
pub(super) fn nobody_acts(but: u32) -> bool {
    let Some(threads) = calls::pause(threads::all) else { return false };
    let others: Vec<_> = threads.into_iter().filter(|thread| thread.id != but).collect();
    let number = others.len();
    // the other threads last acted before
    let endless = ENDLESS.lock().clone();
    let waits = |id: &u32| endless.get(id).is_some_and(|at| at.elapsed() < SUSPICION);
    let is_stuck = |thread: &Thread| {
        waits(&thread.id)
            || match thread.doing() {
                Activity::WaitsForThread => true,
                Activity::WaitsFor { descriptors, once, is_limited: false } => {
                    wake_ups::is_stuck(thread.id, &descriptors, &once)
                }
                _ => false,
            }
    };
    others.iter().all(is_stuck) && calls::pause(|| threads::still(others)).len() == number
}
