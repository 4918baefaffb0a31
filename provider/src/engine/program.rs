//! Program calls: each serves on its thread and wakes the [background thread](super::background)
//! for the rest.
//!
//! A thread announces its sleep and deadline under the lock, then checks again, so later holders
//! see a thread that would oversleep. Arrivals wake threads for which the link is
//! [parked](crate::link::Link::park).
//!
//! `models/` checks this file and `background.rs`.

use std::{io, sync::atomic::Ordering, time::Duration};

use roce_transport::time::Instant;

use super::{
    atomics::AtomicU64,
    poller,
    serve::{Engine, Progress},
    shard::Shard,
    sleep::Wanted,
};
use crate::clock;

impl Engine {
    pub(crate) fn command_shard<R>(&self, command: impl FnOnce(&mut Shard, Instant) -> R) -> R {
        increment(&self.calls.commands);
        let mut shard = self.lock();
        let now = clock::now();
        if shard.is_corked() {
            shard.transmit(now); // earlier posts
        }
        let result = command(&mut shard, now);
        shard.transmit(now);
        shard.count_hold(now);
        self.after_service(&mut shard);
        drop(shard);
        self.explain();
        result
    }

    /// Serves unless another thread does; returns the number of messages received.
    pub(crate) fn progress(&self) -> usize {
        self.count_activity();
        self.let_others_in();
        let Some(mut shard) = self.try_lock() else { return 0 };
        self.event_loop.takes.store(false, Ordering::Relaxed);
        if self.progress == Progress::Manual {
            shard.look(); // the program may have slept
        }
        let received = self.serve_polling(&mut shard);
        self.after_service(&mut shard);
        drop(shard);
        self.explain();
        if self.progress == Progress::Manual {
            self.attend();
        }
        poller::count_poll(received > 0);
        received
    }

    pub(super) fn count_activity(&self) {
        increment(&self.calls.activity);
        self.poller.record_poll();
    }

    /// Wakes the background thread if it would oversleep a timer, unsent packets or a publication.
    pub(super) fn after_service(&self, shard: &mut Shard) {
        let sleeps_until = self.background.sleeps_until.load(Ordering::SeqCst);
        if sleeps_until == 0 {
            return;
        }
        let has_to_publish = shard.publication.wakes();
        if has_to_publish
            || shard.deadline().is_some_and(|deadline| deadline.as_nanos() < sleeps_until)
        {
            shard.publication.know();
            // once: it checks everything when it wakes
            self.background.sleeps_until.store(0, Ordering::SeqCst);
            self.wake_background();
        }
    }

    /// Hands service to the background thread: the program sleeps on a descriptor.
    pub(crate) fn hand_over(&self) {
        if !self.waits.handed_over.swap(true, Ordering::SeqCst) {
            self.wake_background();
        }
    }

    /// Sleeps until `wanted` is readable, an arrival, a timer, a signal, or `limit`.
    pub(crate) fn wait_on_sockets(
        &self,
        wanted: Wanted<'_>,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        match self.wait_on_sockets_or_signal(wanted, limit) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// Like [`wait_on_sockets`](Self::wait_on_sockets), but a signal returns `EINTR`.
    pub(super) fn wait_on_sockets_or_signal(
        &self,
        wanted: Wanted<'_>,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        self.waits.socket_waiters.fetch_add(1, Ordering::SeqCst);
        let (due, quiet) = {
            let mut shard = self.lock();
            if shard.is_due() {
                self.end_socket_wait();
                return Ok(());
            }
            (shard.deadline().map(|deadline| deadline.since(clock::now())), shard.park())
        };
        let timeout = [due, limit].into_iter().flatten().min();
        let result = if quiet { self.sleep_on_sockets(wanted, timeout) } else { Ok(()) };
        self.lock().unpark();
        self.calls.activity.fetch_add(1, Ordering::Relaxed);
        self.end_socket_wait();
        result
    }

    pub(super) fn end_socket_wait(&self) {
        self.waits.socket_waiters.fetch_sub(1, Ordering::SeqCst);
        if self.waits.background_yields.swap(false, Ordering::SeqCst) {
            self.wake_background();
        }
    }

    pub(super) fn stop_background(&self) {
        self.background.stop.store(true, Ordering::SeqCst);
        self.wake_background();
    }
}

/// Increments and returns the sum. Cheaper than an atomic add: simultaneous threads may count as
/// one.
pub(super) fn increment(count: &AtomicU64) -> u64 {
    let sum = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(sum, Ordering::Relaxed);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::publication::Publication;
    use crate::{Device, OpenOptions};

    #[test]
    fn a_thread_that_sleeps_is_woken_once() {
        // no background thread reads the wakeup
        let options = OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
        let context = Device::named("roce_lo").unwrap().open(options).unwrap();
        let engine = &context.inner.engine;
        let times_woken = || {
            let mut count = [0; 8];
            let read = rustix::io::read(&engine.system.wake, &mut count);
            read.map_or(0, |_| u64::from_ne_bytes(count))
        };
        let leave_something = || {
            let mut shard = engine.lock();
            shard.publication = Publication::default();
            shard.publication.start(clock::now());
            shard.publication.counted = true;
            engine.after_service(&mut shard);
        };
        assert_eq!(times_woken(), 0);
        for _ in 0..2 {
            leave_something();
            assert_eq!(times_woken(), 0, "it is awake");
            engine.background.sleeps_until.store(u64::MAX, Ordering::SeqCst);
            (0..3).for_each(|_| leave_something());
            assert_eq!(times_woken(), 1);
        }
    }
}
