//! Objects of which the program has promised that one thread at a time uses them: libraries then
//! take no lock.
//!
//! A thread that comes after another one stays in its call for a moment. If the other one comes
//! back meanwhile, nothing keeps them apart.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use super::{
    finding::{Finding, Kind},
    form::is_on,
    report,
    stack::Stack,
    threads,
};
use crate::sync::Mutex;

/// How long it stays.
const MOMENT: Duration = Duration::from_micros(100);

/// By the program's pointers.
static OBJECTS: Mutex<BTreeMap<usize, Object>> = Mutex::new(BTreeMap::new());

struct Object {
    /// The words of the promise.
    promise: &'static str,
    /// The thread that has used it last.
    last: u32,
    /// The one that uses it, and where.
    inside: Option<(u32, Stack)>,
}

/// Notes a promise.
pub(crate) fn promised(object: usize, promise: &'static str) {
    if is_on() {
        OBJECTS.lock().insert(object, Object { promise, last: 0, inside: None });
    }
}

/// Notes an object that is made with another one, whose promise it has.
pub(crate) fn made_with(object: usize, other: usize) {
    if is_on() {
        let promise = OBJECTS.lock().get(&other).map(|other| other.promise);
        promise.into_iter().for_each(|promise| promised(object, promise));
    }
}

/// Forgets one.
pub(super) fn forget(object: usize) {
    OBJECTS.lock().remove(&object);
}

/// A call of this thread on such an object.
pub(crate) struct Inside(usize);

/// To be called before a call uses an object, without locks. Tells if another thread does.
pub(crate) fn enter(object: usize, call: &str) -> Option<Inside> {
    let this = threads::this();
    let mut objects = OBJECTS.lock();
    let entry = objects.get_mut(&object)?;
    if let Some((by, other)) = &entry.inside
        && *by != this
    {
        let finding = Finding {
            kind: Kind::UsedByTwoThreads,
            what: format!("{call}: {}, and another thread is in a call on it", entry.promise),
            stacks: vec![("called", Stack::here()), ("the other thread", other.clone())],
        };
        drop(objects);
        report::tell(&finding);
        return None;
    }
    entry.inside = Some((this, Stack::here()));
    let last = std::mem::replace(&mut entry.last, this);
    drop(objects);
    let began = Instant::now();
    while ![0, this].contains(&last) && began.elapsed() < MOMENT {
        thread::yield_now();
    }
    Some(Inside(object))
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(entry) = OBJECTS.lock().get_mut(&self.0) {
            entry.inside = None;
        }
    }
}
