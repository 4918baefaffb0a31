//! The thread of a program that polls, as the system sees it: a thread that makes no call may be at other
//! work, or may be kept from the processor by others.

#![allow(unsafe_code, reason = "the clock of another thread has no safe interface")]

use std::{
    cell::Cell,
    fs, mem,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use roce_transport::time::Instant;
use rustix::thread::gettid;

use crate::clock;

thread_local! {
    /// Number of this thread in the system; 0: it is not known yet.
    static ID: Cell<u32> = const { Cell::new(0) };
}

/// The thread that has polled last; 0: none has.
#[derive(Debug, Default)]
pub(super) struct Poller(AtomicU32);

/// What it had run at a time.
pub(super) struct Watched {
    thread: u32,
    at: Instant,
    run: Duration,
}

impl Poller {
    /// The calling thread polls.
    pub(super) fn note(&self) {
        let id = ID.get();
        let id = if id == 0 { learn() } else { id };
        if self.0.load(Ordering::Relaxed) != id {
            self.0.store(id, Ordering::Relaxed);
        }
    }

    /// Has it watched from now on, if it is there.
    pub(super) fn watch(&self) -> Option<Watched> {
        let thread = self.0.load(Ordering::Relaxed);
        Some(Watched { thread, at: clock::now(), run: run_time(thread)? })
    }
}

impl Watched {
    /// Time for which it has been watched.
    pub(super) fn since(&self, now: Instant) -> Duration {
        now.since(self.at)
    }

    /// True if others have the processor that it waits for: it has run for less than half of the time since.
    pub(super) fn lacks_processor(&self) -> bool {
        let passed = clock::now().since(self.at);
        run_time(self.thread)
            .is_some_and(|run| run.saturating_sub(self.run) < passed / 2 && is_ready(self.thread))
    }
}

#[cold]
fn learn() -> u32 {
    let id = gettid().as_raw_nonzero().get().cast_unsigned();
    ID.set(id);
    id
}

/// The thread is that of a child that was forked, where it has another number.
pub(super) fn forget() {
    let _ = ID.try_with(|id| id.set(0));
}

/// Time for which a thread of this process has had a processor.
fn run_time(thread: u32) -> Option<Duration> {
    // as the kernel numbers the clocks of threads: CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
    let clock = !thread.cast_signed() << 3 | 4 | 2;
    // SAFETY: all of its members are numbers
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes the structure, and refuses a clock that there is not
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let is_known = thread != 0 && result == 0;
    is_known.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
}

/// True if a thread of this process runs, or would if it had a processor.
fn is_ready(thread: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // behind its name, which may be any text in parentheses
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

#[cfg(test)]
mod tests {
    use std::{
        hint,
        sync::{Barrier, atomic::AtomicBool},
        thread,
    };

    use super::*;

    const WHILE: Duration = Duration::from_millis(20);

    /// Polls once, and does `work` from then on until `over`.
    fn watched<R>(work: impl Fn() + Sync, act: impl FnOnce(&Poller) -> R) -> R {
        let (poller, over, begun) = (Poller::default(), AtomicBool::new(false), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                poller.note();
                begun.wait();
                while !over.load(Ordering::Relaxed) {
                    work();
                }
            });
            begun.wait();
            let result = act(&poller);
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    fn lacks_processor(poller: &Poller) -> bool {
        let watched = poller.watch().unwrap();
        thread::sleep(WHILE);
        watched.lacks_processor()
    }

    #[test]
    fn a_thread_that_sleeps_lacks_no_processor() {
        let sleep = || thread::sleep(WHILE * 2);
        // when it wakes it may have to wait for one
        assert!(watched(sleep, |poller| (0..500).any(|_| !lacks_processor(poller))));
    }

    #[test]
    fn a_thread_that_runs_lacks_none() {
        // others may have the processor for a while
        assert!(watched(|| {}, |poller| (0..500).any(|_| !lacks_processor(poller))));
    }

    #[test]
    fn a_thread_behind_others_lacks_one() {
        let behind = || {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: the kernel reads the structure
            let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) };
            assert_eq!(result, 0);
        };
        let processors = thread::available_parallelism().unwrap().get();
        let over = AtomicBool::new(false);
        let lacks = thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        hint::spin_loop();
                    }
                });
            }
            let lacks = watched(behind, |poller| (0..500).any(|_| lacks_processor(poller)));
            over.store(true, Ordering::Relaxed);
            lacks
        });
        assert!(lacks);
    }

    #[test]
    fn a_thread_that_is_not_there_is_not_watched() {
        let poller = Poller::default();
        assert!(poller.watch().is_none());
        thread::scope(|scope| scope.spawn(|| poller.note()).join()).unwrap();
        assert!(poller.watch().is_none_or(|watched| !watched.lacks_processor()));
    }
}
