//! Calls of the C interface during `fork` and `pthread_cancel`.
//!
//! A fork copies one thread: locks that others hold stay locked in the child. So the forking thread
//! waits until no other thread is inside a call, and blocks new ones. A holder of a `ProcessMutex`,
//! state that the Rust interface locks too, counts as inside a call.
//!
//! Not counted: data calls, which take the engine's lock that the forking thread holds, and calls
//! that wait for the program ([`pause`]), which might wait for the fork.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::thread::futex;

use crate::{cancel::Uncancelled, sync::Mutex};

/// Scope of a call: delays forks by other threads and cancellation of this one.
#[derive(Debug)]
pub struct Call {
    _inside: Inside,
    // last: fields drop in order
    _uncancelled: Uncancelled,
}

impl Call {
    /// Waits for a fork in progress.
    #[must_use]
    pub fn begin() -> Self {
        let uncancelled = Uncancelled::begin();
        Self { _inside: Inside::enter(), _uncancelled: uncancelled }
    }
}

/// Threads inside a call. Futex words leave no lock to the child and keep the call's `errno`.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Threads about to fork, which block new calls.
static FORKING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Nesting depth of this thread's calls.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Waits while the word has this value; may return early.
fn wait(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
}

fn enter() {
    loop {
        match FORKING.load(Ordering::SeqCst) {
            0 => {}
            forking => {
                wait(&FORKING, forking);
                continue;
            }
        }
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            return;
        }
        leave();
    }
}

fn leave() {
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    if FORKING.load(Ordering::SeqCst) > 0 {
        wake(&INSIDE);
    }
}

/// True inside a call: calls made now are the library's.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

#[derive(Debug)]
struct Inside;

impl Inside {
    fn enter() -> Self {
        let depth = DEPTH.get();
        if depth == 0 {
            enter();
        }
        DEPTH.set(depth + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            leave();
        }
    }
}

/// Waits for the program, outside this thread's call. The caller holds no lock.
pub fn pause<R>(wait: impl FnOnce() -> R) -> R {
    let depth = DEPTH.replace(0);
    if depth > 0 {
        leave();
    }
    let result = wait();
    if depth > 0 {
        enter();
    }
    DEPTH.set(depth);
    result
}

/// Process-wide mutex, free in a forked child.
///
/// Take it without an engine's lock: the forking thread takes those after all calls end.
#[derive(Debug)]
pub(crate) struct ProcessMutex<T>(Mutex<T>);

/// Guard of a [`ProcessMutex`].
#[must_use]
pub(crate) struct ProcessGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // last: fields drop in order
    _inside: Inside,
}

impl<T> ProcessMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks when no thread holds it or is about to fork.
    pub(crate) fn lock(&self) -> ProcessGuard<'_, T> {
        let inside = Inside::enter();
        ProcessGuard { value: self.0.lock(), _inside: inside }
    }
}

impl<T> Deref for ProcessGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ProcessGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Guard that keeps other threads out of calls; drop it in both processes.
#[derive(Debug)]
pub(crate) struct CallsExcluded {
    /// 1 inside a call, such as by a program's forking allocator.
    own: u32,
}

impl CallsExcluded {
    /// Waits until all other calls end.
    pub(crate) fn begin() -> Self {
        FORKING.fetch_add(1, Ordering::SeqCst);
        let own = u32::from(DEPTH.get() > 0);
        loop {
            match INSIDE.load(Ordering::SeqCst) {
                inside if inside <= own => return Self { own },
                inside => wait(&INSIDE, inside),
            }
        }
    }

    /// Resets the counts in the child, which has one thread.
    pub(crate) fn is_alone(&mut self) {
        INSIDE.store(self.own, Ordering::SeqCst);
        FORKING.store(1, Ordering::SeqCst);
    }
}

impl Drop for CallsExcluded {
    fn drop(&mut self) {
        FORKING.fetch_sub(1, Ordering::SeqCst);
        wake(&FORKING);
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command, sync::atomic::AtomicBool, thread, time::Duration};

    use super::*;
    use crate::own_test;

    /// Runs in a process of its own: the counts are process-wide.
    #[test]
    fn a_fork_waits_for_calls_and_calls_wait_for_a_fork() {
        const ALONE: &str = "ROCE_TEST_ALONE";
        let name = "calls::tests::a_fork_waits_for_calls_and_calls_wait_for_a_fork";
        if env::var_os(ALONE).is_none() {
            let mut command = Command::new(env::current_exe().unwrap());
            let status = command.args(["--exact", own_test::named(name)]).env(ALONE, "1").status();
            assert!(status.unwrap().success());
            return;
        }
        let forked = AtomicBool::new(false);
        let call = Inside::enter();
        thread::scope(|scope| {
            let fork = scope.spawn(|| {
                let others = CallsExcluded::begin();
                thread::sleep(Duration::from_millis(20)); // long enough for those that wait
                forked.store(true, Ordering::SeqCst);
                drop(others);
            });
            while FORKING.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            drop(Inside::enter()); // inside another one: it would wait for itself
            let other = scope.spawn(|| {
                let _inside = Inside::enter();
                forked.load(Ordering::SeqCst)
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!fork.is_finished() && !other.is_finished());
            // a call that waits for the program allows forks
            pause(|| fork.join().unwrap());
            assert!(other.join().unwrap(), "a new one has waited");
        });
        drop(call);

        // state of other threads at the fork
        let call = Inside::enter();
        let mut others = CallsExcluded::begin();
        INSIDE.fetch_add(1, Ordering::SeqCst);
        FORKING.fetch_add(1, Ordering::SeqCst);
        others.is_alone();
        drop(others);
        drop(call);
        assert_eq!([&INSIDE, &FORKING].map(|word| word.load(Ordering::SeqCst)), [0, 0]);
    }
}
