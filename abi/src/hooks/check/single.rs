//! Objects promised to a single thread: libraries take no lock.
//!
//! After a change of thread, a call lingers for 100 µs to meet a call of the first thread.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use roce_provider::calls::Call;

use super::{Finding, Kind, Stack, is_on, report, threads};
use crate::sync::Mutex;

const CALL_OVERLAP: Duration = Duration::from_micros(100);

/// By pointer.
static OBJECTS: Mutex<BTreeMap<usize, Object>> = Mutex::new(BTreeMap::new());

struct Object {
    promise: &'static str,
    last: u32,
    inside: Option<(u32, Stack)>,
}

pub(crate) fn promised(object: usize, promise: &'static str) {
    if is_on() {
        OBJECTS.lock().insert(object, Object { promise, last: 0, inside: None });
    }
}

pub(crate) fn made_with(object: usize, other: usize) {
    if is_on() {
        let promise = OBJECTS.lock().get(&other).map(|other| other.promise);
        promise.into_iter().for_each(|promise| promised(object, promise));
    }
}

pub(super) fn forget(object: usize) {
    OBJECTS.lock().remove(&object);
}

pub(crate) struct Inside(usize);

/// Enters a call, without locks; reports a concurrent thread.
pub(crate) fn enter(object: usize, call: &str) -> Option<Inside> {
    let this = threads::this();
    let mut objects = OBJECTS.lock();
    let entry = objects.get_mut(&object)?;
    if let Some((by, other)) = &entry.inside
        && *by != this
    {
        let what = format!("{call}: {}, and another thread is inside a call on it", entry.promise);
        let other = ("the other thread", other.clone());
        let finding = Finding::here(Kind::UsedByTwoThreads, "called", what, [other]);
        drop(objects);
        report::emit(&finding);
        return None;
    }
    entry.inside = Some((this, Stack::here()));
    let last = std::mem::replace(&mut entry.last, this);
    drop(objects);
    let began = Instant::now();
    while ![0, this].contains(&last) && began.elapsed() < CALL_OVERLAP {
        thread::yield_now();
    }
    Some(Inside(object))
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _call = Call::begin(); // no fork under the lock
        if let Some(entry) = OBJECTS.lock().get_mut(&self.0) {
            entry.inside = None;
        }
    }
}
