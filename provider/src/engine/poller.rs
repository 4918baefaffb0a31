//! The thread of a program that polls, as the system sees it. A thread that makes no call may be at
//! other work, or may wait for the processor.

#![allow(unsafe_code, reason = "the clock of another thread has no safe interface")]

use std::{
    cell::Cell,
    fs, mem,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use roce_transport::time::Instant;
use rustix::thread::gettid;

use super::schedule::spin::PollYields;
use crate::clock;

thread_local! {
    /// Number of this thread in the system; 0: it is not known yet.
    static ID: Cell<u32> = const { Cell::new(0) };
    static YIELDS: Cell<PollYields> = const { Cell::new(PollYields::new()) };
}

/// The thread that has polled last; 0: none has.
#[derive(Debug, Default)]
pub(super) struct Poller(AtomicU32);

/// The calling thread has polled, and has received something or not. One that polls in vain may
/// keep those from the processor that it waits for: it yields now and then.
pub(super) fn count_poll(received: bool) {
    let mut yields = YIELDS.get();
    if yields.count_poll(received) {
        let start = clock::now();
        thread::yield_now();
        yields.record_yield(clock::now().since(start));
    }
    YIELDS.set(yields);
}

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

    /// True if it waits for something else than the processor.
    pub(super) fn sleeps(&self) -> bool {
        !is_ready(self.0.load(Ordering::Relaxed))
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

    /// True if others have the processor that it waits for.
    pub(super) fn lacks_processor(&self) -> bool {
        let passed = clock::now().since(self.at);
        let ran = run_time(self.thread).map(|run| run.saturating_sub(self.run));
        ran.is_some_and(|ran| waits_for_processor(ran, passed, || is_ready(self.thread)))
    }
}

/// A thread that has run for less than half of the time, and would run now.
fn waits_for_processor(ran: Duration, passed: Duration, is_ready: impl Fn() -> bool) -> bool {
    ran < passed / 2 && is_ready()
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
        sync::{atomic::AtomicBool, mpsc},
        thread,
    };

    use super::*;

    #[track_caller]
    fn eventually(holds: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
    }

    fn thread_of(poller: &Poller) -> u32 {
        poller.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_thread_lacks_the_processor_if_it_is_ready_and_has_run_for_less_than_half() {
        let ms = Duration::from_millis;
        for (ran, is_ready, lacks) in [
            (0, true, true),
            (9, true, true),
            (10, true, false),
            (20, true, false),
            (0, false, false),
        ] {
            assert_eq!(
                waits_for_processor(ms(ran), ms(20), || is_ready),
                lacks,
                "{ran}, {is_ready}"
            );
        }
    }

    #[test]
    fn a_thread_that_waits_for_something_is_not_ready() {
        let (poller, (end, ended)) = (Poller::default(), mpsc::channel::<()>());
        thread::scope(|scope| {
            let poller = &poller;
            scope.spawn(move || {
                poller.note();
                ended.recv().unwrap_err();
            });
            eventually(|| poller.watch().is_some() && !is_ready(thread_of(poller)));
            assert!(!poller.watch().unwrap().lacks_processor());
            drop(end);
        });
    }

    #[test]
    fn a_thread_that_runs_is_ready_and_its_time_passes() {
        let (poller, over) = (Poller::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                poller.note();
                while !over.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
            eventually(|| poller.watch().is_some());
            let watched = poller.watch().unwrap();
            eventually(|| run_time(watched.thread).unwrap() > watched.run);
            assert!(is_ready(watched.thread));
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_thread_that_is_not_there_is_not_watched() {
        let poller = Poller::default();
        assert!(poller.watch().is_none());
        thread::scope(|scope| scope.spawn(|| poller.note()).join()).unwrap();
        assert!(poller.watch().is_none_or(|watched| !watched.lacks_processor()));
    }
}
