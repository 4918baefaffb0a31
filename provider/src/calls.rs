//! C calls during `fork` and `pthread_cancel`.
//!
//! A lock held by another thread at `fork` stays locked in the child. The forking thread waits for
//! other threads' calls and blocks new calls. A held `ProcessMutex`, which the Rust interface locks
//! too, counts as a call.
//!
//! Data calls do not count: the forking thread takes their lock, the engine's. Calls that wait for
//! the program ([`pause`]) do not count: they might wait for the fork.

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

/// Scope of a call. Delays other threads' forks and this thread's cancellation.
#[derive(Debug)]
pub struct Call {
    _inside: Inside,
    // dropped last
    _uncancelled: Uncancelled,
}

impl Call {
    /// Waits for a running fork.
    #[must_use]
    pub fn begin() -> Self {
        let uncancelled = Uncancelled::begin();
        Self { _inside: Inside::enter(), _uncancelled: uncancelled }
    }
}

/// Threads inside a call. Futexes leave no lock to the child and keep `errno`.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Threads about to fork.
static FORKING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Nesting of calls.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// May return early.
fn wait(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
}

fn enter() {
    loop {
        while let forking @ 1.. = FORKING.load(Ordering::SeqCst) {
            wait(&FORKING, forking);
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

/// Waits for the program outside the call. The caller must hold no lock.
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
/// Lock order: before an engine's lock. The forking thread locks engines after all calls end.
#[derive(Debug)]
pub(crate) struct ProcessMutex<T>(Mutex<T>);

#[must_use]
pub(crate) struct ProcessGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // dropped last
    _inside: Inside,
}

impl<T> ProcessMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Also waits for a fork.
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

/// Keeps other threads out of calls. Drop in parent and child.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    /// 1 inside a call, for example in a forking allocator.
    own: u32,
}

impl ForkGuard {
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

    /// Resets the counts in the single-threaded child.
    pub(crate) fn reset_in_child(&mut self) {
        INSIDE.store(self.own, Ordering::SeqCst);
        FORKING.store(1, Ordering::SeqCst);
    }
}

impl Drop for ForkGuard {
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

    /// In its own process: the counts are process-wide.
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
                let others = ForkGuard::begin();
                thread::sleep(Duration::from_millis(20)); // others must wait meanwhile
                forked.store(true, Ordering::SeqCst);
                drop(others);
            });
            while FORKING.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            drop(Inside::enter()); // nested calls do not wait
            let other = scope.spawn(|| {
                let _inside = Inside::enter();
                forked.load(Ordering::SeqCst)
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!fork.is_finished() && !other.is_finished());
            pause(|| fork.join().unwrap());
            assert!(other.join().unwrap(), "a new one has waited");
        });
        drop(call);

        // other threads at the fork
        let call = Inside::enter();
        let mut others = ForkGuard::begin();
        INSIDE.fetch_add(1, Ordering::SeqCst);
        FORKING.fetch_add(1, Ordering::SeqCst);
        others.reset_in_child();
        drop(others);
        drop(call);
        assert_eq!([&INSIDE, &FORKING].map(|word| word.load(Ordering::SeqCst)), [0, 0]);
    }
}
