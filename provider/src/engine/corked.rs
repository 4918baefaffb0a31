//! [Corking](super::schedule::cork) in an engine. `models/` checks that corked packets leave in
//! time.

use std::sync::atomic::Ordering;

use roce_transport::time::Instant;

use super::{
    poller::Watched,
    program::increment,
    schedule::{
        cork::{Load, Next},
        times::ACK_LONGEST,
    },
    serve::Engine,
    shard::Shard,
};
use crate::clock;

impl Engine {
    /// Serves too if arrivals went long unserved.
    pub(super) fn cork_or_send(&self, shard: &mut Shard, now: Instant, load: Load) {
        let waited = shard.is_corked();
        if !shard.corks(now, load, self.calls.polls(), self.next_step()) {
            shard.transmit(now);
        } else if !waited {
            // arm the timer last: the woken thread must see the corked requests
            self.wake_later(shard, now);
            shard.record_timer();
        }
        if shard.cork.is_unserved(now) {
            self.count_activity();
            self.serve(shard, false);
        }
    }

    pub(super) fn wake_later(&self, shard: &mut Shard, now: Instant) {
        if let Some(after) = shard.cork.observer().set_timer(now) {
            self.set_timer(after);
        }
    }

    /// Acknowledgements may wait for the program's reply.
    pub(super) fn serve_polling(&self, shard: &mut Shard) -> usize {
        shard.cork.observer().count_poll();
        let received = self.serve(shard, true);
        if shard.is_corked() {
            self.wake_later(shard, clock::now());
        }
        received
    }

    /// Counts a poll without service; flushes corked packets when due.
    #[inline]
    pub(crate) fn count_find(&self) {
        increment(&self.calls.finds);
        let until = self.corked_until.load(Ordering::Relaxed);
        if until != 0
            && clock::now().as_nanos() >= until
            && let Some(mut shard) = self.try_lock()
        {
            self.flush(&mut shard);
        }
    }

    pub(crate) fn uncork(&self) {
        if self.corked_until.load(Ordering::Relaxed) != 0 {
            self.flush(&mut self.lock());
        }
    }

    /// The program may sleep in its event loop. Acknowledgements alone wait for its reply.
    pub(crate) fn uncork_requests(&self) {
        if self.corked_until.load(Ordering::Relaxed) != 0 {
            let mut shard = self.lock();
            if shard.cork.holds_requests() {
                self.flush(&mut shard);
            }
        }
    }

    fn flush(&self, shard: &mut Shard) {
        shard.transmit(clock::now());
        self.after_service(shard);
    }

    fn next_step(&self) -> Next {
        if self.has_untaken() {
            Next::TakesEvent
        } else if self.is_in_loop() {
            Next::Sleeps
        } else {
            Next::Polls
        }
    }

    /// Flushes after the timer. Acknowledgements wait on while the replying program lacks a
    /// processor.
    pub(super) fn attend_timer(&self, response: &mut Option<Watched>) {
        if self.corked_until.load(Ordering::SeqCst) == 0 {
            *response = None;
            return;
        }
        let is_kept = response.as_ref().is_some_and(|watched| {
            watched.since(clock::now()) < ACK_LONGEST && watched.lacks_processor()
        });
        let mut shard = self.lock();
        let now = clock::now();
        if shard.cork.is_response_late(now) {
            *response = match response.take() {
                None => self.poller.watch(),
                watched => watched.filter(|_| is_kept),
            };
            if response.is_some() {
                let after = shard.cork.change(|cork| cork.excuse(now));
                self.set_timer(after);
                return;
            }
        }
        if shard.is_late(now) {
            if self.event_loop.takes.load(Ordering::Relaxed) && self.poller.sleeps() {
                let end = shard.cork.observer().pause_events(now);
                self.event_loop.untaken_not_before.store(end.as_nanos(), Ordering::Relaxed);
            }
            shard.transmit(now);
            shard.count_hold(now);
        }
    }
}
