//! Calls of the C interface, as `fork` and `pthread_cancel` find them.
//!
//! A fork copies one thread. Whatever another one is in the middle of stays so in the child for
//! ever: a lock that is held, a table that is half written. So the thread that forks waits until no
//! other is inside a call, and lets none in until it has forked. That holds for all that calls
//! lock, and all that they make only once, without a list of it.
//!
//! What the whole process shares, and calls of the Rust interface lock, too, is a
//! `ProcessMutex`: a thread that holds it counts as inside a call.
//!
//! Calls that move data are not counted: what they lock is the engine's lock, which the forking
//! thread holds. Nor is a call while it waits for the program ([`pause`]), which might wait for the
//! fork.

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

/// A call, from its beginning until it is dropped: no other thread forks, and this one is not
/// cancelled.
#[derive(Debug)]
pub struct Call {
    _inside: Inside,
    // behind it: fields are dropped in this order
    _uncancelled: Uncancelled,
}

impl Call {
    /// Waits for a fork that another thread is about to do.
    #[must_use]
    pub fn begin() -> Self {
        let uncancelled = Uncancelled::begin();
        Self { _inside: Inside::enter(), _uncancelled: uncancelled }
    }
}

/// Number of threads inside a call. It and the next are words that the kernel waits on, without a
/// lock, which the child would inherit, and without `errno`, which a call has set.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Number of threads that are about to fork. No thread gets in meanwhile.
static FORKING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Number of calls that this thread is in, one inside the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Waits while the word has this value; it may return early.
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

/// True if this thread is in a call: one that it makes now is the library's own.
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

/// Waits for something that the program will do, outside of the call that this thread is in. The
/// caller holds no lock.
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

/// A mutex that all of the process shares, of which a child finds its copy free. No engine's lock
/// is held by a thread that takes it: the forking thread takes those when all others are out of
/// calls.
#[derive(Debug)]
pub(crate) struct ProcessMutex<T>(Mutex<T>);

/// A [`ProcessMutex`], locked.
#[must_use]
pub(crate) struct ProcessGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // behind it: fields are dropped in this order
    _inside: Inside,
}

impl<T> ProcessMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// The lock, as soon as no other thread holds it, nor is about to fork.
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

/// As long as it lives, no other thread is inside a call. It is to be dropped in both processes.
#[derive(Debug)]
pub(crate) struct NoOther {
    /// 1 if this thread is inside a call itself: a program's allocator that forks, for example.
    own: u32,
}

impl NoOther {
    /// Waits until all others have left.
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

    /// This thread is the only one: in the child.
    pub(crate) fn is_alone(&mut self) {
        INSIDE.store(self.own, Ordering::SeqCst);
        FORKING.store(1, Ordering::SeqCst);
    }
}

impl Drop for NoOther {
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

    /// One test, in a process of its own: the words are the process's, and other tests make calls.
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
                let others = NoOther::begin();
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
            // one that waits for the program keeps nobody from forking
            pause(|| fork.join().unwrap());
            assert!(other.join().unwrap(), "a new one has waited");
        });
        drop(call);

        // what the other threads were about to do when the child was made
        let call = Inside::enter();
        let mut others = NoOther::begin();
        INSIDE.fetch_add(1, Ordering::SeqCst);
        FORKING.fetch_add(1, Ordering::SeqCst);
        others.is_alone();
        drop(others);
        drop(call);
        assert_eq!([&INSIDE, &FORKING].map(|word| word.load(Ordering::SeqCst)), [0, 0]);
    }
}
