//! Program threads that wait.
//!
//! One waiting thread serves, which saves a wakeup by the background thread. It spins briefly, then
//! sleeps on the sockets too. After some milliseconds without work the background thread takes the
//! sockets.
//!
//! `models/` checks the concurrency.

use std::{io, sync::atomic::Ordering, time::Duration};

use roce_transport::time::Instant;

use super::{
    processor::thread,
    schedule::{
        spin::SpinPolicy,
        times::{POLLED, RETURNS, SERVES, UNPOLLED},
    },
    serve::Engine,
    sleep::Wanted,
};
use crate::clock;

impl Engine {
    /// Serves until `is_there`, for up to [`SERVES`] or `limit`; not beside threads that wait or
    /// poll. If false, the thread may sleep on `wanted`.
    ///
    /// # Errors
    /// `EINTR` after a signal, or if the system cannot wait.
    pub(crate) fn serve_until(
        &self,
        wanted: Wanted<'_>,
        limit: Option<Duration>,
        is_there: impl Fn() -> bool,
    ) -> io::Result<bool> {
        let Some(mut waiter) = self.waiter.try_lock() else { return Ok(false) };
        let now = clock::now();
        self.waits.waited_at.store(now.as_nanos(), Ordering::Relaxed);
        let end = now.plus(limit.map_or(SERVES, |limit| limit.min(SERVES)));
        loop {
            if self.waits.sleepers.load(Ordering::SeqCst) > 0 || waiter.polled.lasts(clock::now()) {
                return Ok(false);
            }
            if self.linger_until(&mut waiter.spin, &is_there) {
                waiter.polled.miss(UNPOLLED);
                return Ok(true);
            }
            let now = clock::now();
            let left = end.since(now);
            if left.is_zero() {
                return Ok(false);
            }
            let before = self.calls.activity.load(Ordering::Relaxed);
            self.wait_on_sockets_or_signal(wanted, Some(left))?;
            if is_there() {
                return Ok(true);
            }
            if self.calls.activity.load(Ordering::Relaxed) > before + 1 {
                waiter.polled.renew(POLLED, clock::now());
            }
        }
    }

    fn linger_until(&self, spin: &mut SpinPolicy, is_there: impl Fn() -> bool) -> bool {
        let start = clock::now();
        let mut last = start;
        loop {
            let received = self.progress();
            if is_there() {
                return true;
            }
            let now = clock::now();
            if received > 0 && now.since(start) < SERVES {
                last = now;
            } else if spin.lasts(now.since(last), now) {
                yield_to_others(spin);
            } else {
                return false;
            }
        }
    }

    /// True if a thread [serves](Self::serve_until) while it waits, or is expected to soon.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        let began = Instant::from_nanos(self.waits.waited_at.load(Ordering::Relaxed));
        now < began.plus(RETURNS) || self.waiter.try_lock().is_none()
    }

    /// Begins a sleep on a descriptor that others make readable, until
    /// [`end_sleep`](Self::end_sleep).
    pub(crate) fn begin_sleep(&self) {
        self.waits.sleepers.fetch_add(1, Ordering::SeqCst);
        self.hand_over();
    }

    pub(crate) fn end_sleep(&self) {
        self.waits.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn background_finds(&self) -> u64 {
        self.background.found.load(Ordering::Relaxed)
    }
}

/// Yields, and records for how long.
pub(super) fn yield_to_others(spin: &mut SpinPolicy) {
    let before = clock::now();
    thread::yield_now();
    let after = clock::now();
    spin.record_yield(after.since(before), after);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Device, OpenOptions, notify::Notifier, verbs::Context};

    fn open() -> (Context, Notifier<()>) {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        (context, Notifier::new().unwrap())
    }

    impl Engine {
        pub(crate) fn activity(&self) -> u64 {
            self.calls.activity.load(Ordering::Relaxed)
        }

        pub(crate) fn is_handed_over(&self) -> bool {
            self.waits.handed_over.load(Ordering::SeqCst)
        }

        pub(crate) fn take_back(&self) {
            self.waits.handed_over.store(false, Ordering::SeqCst);
        }

        pub(crate) fn finds(&self) {
            self.background.found.fetch_add(1, Ordering::Relaxed);
        }

        /// Whether an event was found, and whether the thread served.
        fn try_until(&self, wanted: &Notifier<()>) -> (bool, bool) {
            let before = self.calls.activity.load(Ordering::Relaxed);
            let found = self.serve_until(wanted.descriptor(), None, || !wanted.is_empty()).unwrap();
            (found, self.calls.activity.load(Ordering::Relaxed) != before)
        }
    }

    #[test]
    fn a_thread_serves_unless_another_does_or_sleeps() {
        let (context, wanted) = open();
        let engine: &Arc<Engine> = &context.inner.engine;
        assert_eq!(engine.try_until(&wanted), (false, true), "for a while");
        engine.begin_sleep();
        assert_eq!(engine.try_until(&wanted), (false, false));
        engine.end_sleep();
        {
            let _other = engine.waiter.try_lock().unwrap();
            assert_eq!(engine.try_until(&wanted), (false, false));
        }
        wanted.push(());
        assert_eq!(engine.try_until(&wanted), (true, true));
        let began = Instant::from_nanos(engine.waits.waited_at.load(Ordering::Relaxed));
        assert!(engine.is_awaited(began.plus(RETURNS / 2)), "it may come again at once");
        assert!(!engine.is_awaited(began.plus(RETURNS)));
    }

    #[test]
    fn a_thread_leaves_serving_to_those_that_poll() {
        let (context, wanted) = open();
        let engine = &context.inner.engine;
        // another thread polls meanwhile
        let polled = || {
            engine.calls.activity.fetch_add(2, Ordering::Relaxed);
            false
        };
        let found = engine.serve_until(wanted.descriptor(), None, polled).unwrap();
        assert!(!found);
        {
            let polled = &mut engine.waiter.try_lock().unwrap().polled;
            let now = clock::now();
            assert!(polled.lasts(now) || polled.is_remembered(now));
            polled.renew([POLLED[1] * 1000; 2], now); // longer than this test
        }
        assert_eq!(engine.try_until(&wanted), (false, false));
    }

    #[test]
    fn a_limit_is_kept() {
        let (context, wanted) = open();
        let engine = &context.inner.engine;
        let nothing = |limit| engine.serve_until(wanted.descriptor(), limit, || false).unwrap();
        let start = clock::now();
        assert!(!nothing(Some(Duration::ZERO)));
        assert!(!nothing(Some(SERVES * 1000)), "whatever is allowed");
        assert!(clock::now().since(start) < SERVES * 500);
    }
}
