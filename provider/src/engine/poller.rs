//! Polling thread: without calls it works elsewhere or lacks a processor.

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
    /// Thread id; 0: unknown yet.
    static ID: Cell<u32> = const { Cell::new(0) };
    static YIELDS: Cell<PollYields> = const { Cell::new(PollYields::new()) };
}

/// Thread of the latest poll; 0: none.
#[derive(Debug, Default)]
pub(super) struct Poller(AtomicU32);

/// Counts a poll; empty polls yield now and then.
pub(super) fn count_poll(received: bool) {
    let mut yields = YIELDS.get();
    if yields.count_poll(received) {
        let start = clock::now();
        thread::yield_now();
        yields.record_yield(clock::now().since(start));
    }
    YIELDS.set(yields);
}

pub(super) struct Watched {
    thread: u32,
    at: Instant,
    run: Duration,
}

impl Poller {
    pub(super) fn record_poll(&self) {
        let id = ID.get();
        let id = if id == 0 { learn() } else { id };
        if self.0.load(Ordering::Relaxed) != id {
            self.0.store(id, Ordering::Relaxed);
        }
    }

    pub(super) fn sleeps(&self) -> bool {
        !is_ready(self.0.load(Ordering::Relaxed))
    }

    /// `None` if the thread is gone.
    pub(super) fn watch(&self) -> Option<Watched> {
        let thread = self.0.load(Ordering::Relaxed);
        Some(Watched { thread, at: clock::now(), run: run_time(thread)? })
    }
}

impl Watched {
    pub(super) fn since(&self, now: Instant) -> Duration {
        now.since(self.at)
    }

    pub(super) fn lacks_processor(&self) -> bool {
        let passed = clock::now().since(self.at);
        let ran = run_time(self.thread).map(|run| run.saturating_sub(self.run));
        ran.is_some_and(|ran| waits_for_processor(ran, passed, || is_ready(self.thread)))
    }
}

fn waits_for_processor(ran: Duration, passed: Duration, is_ready: impl Fn() -> bool) -> bool {
    ran < passed / 2 && is_ready()
}

#[cold]
fn learn() -> u32 {
    let id = gettid().as_raw_nonzero().get().cast_unsigned();
    ID.set(id);
    id
}

/// Forgets the id in a forked child.
pub(super) fn forget() {
    let _ = ID.try_with(|id| id.set(0));
}

fn run_time(thread: u32) -> Option<Duration> {
    // the kernel's clock numbers: CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
    let clock = !thread.cast_signed() << 3 | 4 | 2;
    // SAFETY: all members are numbers
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes the structure, or refuses the clock
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let is_known = thread != 0 && result == 0;
    is_known.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
}

/// True if a thread runs or is ready.
fn is_ready(thread: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // after its name, any text in parentheses
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
                poller.record_poll();
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
                poller.record_poll();
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
        thread::scope(|scope| scope.spawn(|| poller.record_poll()).join()).unwrap();
        assert!(poller.watch().is_none_or(|watched| !watched.lacks_processor()));
    }
}
