//! What an engine does with requests that are [gathered](super::gathering).
//!
//! The models of concurrency (`models/`) run this file: what waits leaves in time, whatever the program
//! does next.

use std::sync::atomic::Ordering;

use roce_transport::time::Instant;

use super::{gathering::Load, serve::Engine, shard::Shard};
use crate::clock;

impl Engine {
    /// What the program has posted leaves, or waits for more.
    pub(super) fn gather(&self, shard: &mut Shard, now: Instant, load: Load) {
        let waited = shard.gathers();
        if !shard.gather(now, load, self.activity.load(Ordering::Relaxed)) {
            shard.transmit(now);
        } else if !waited {
            // after what it is for is noted: who hears it finds that
            self.wake_later(shard, now);
        }
    }

    fn wake_later(&self, shard: &mut Shard, now: Instant) {
        if let Some(after) = shard.gathering.set_timer(now) {
            self.set_timer(after);
        }
    }

    /// Serves for a program that polls. What acknowledges the messages that it finds may wait for its
    /// answer.
    pub(super) fn serve_polling(&self, shard: &mut Shard) -> usize {
        shard.gathering.note_poll();
        let received = self.serve(shard, true);
        if shard.gathers() {
            self.wake_later(shard, clock::now());
        }
        received
    }

    /// Sends what has waited long enough. For a program that polls and finds something, which does not
    /// serve the adapter then.
    #[inline]
    pub(crate) fn send_overdue(&self) {
        let until = self.gathered_until.load(Ordering::Relaxed);
        if until != 0
            && clock::now().as_nanos() >= until
            && let Some(mut shard) = self.try_lock()
        {
            shard.transmit(clock::now());
            self.after_service(&mut shard);
        }
    }

    /// Sends what waits: the program is about to do something else.
    pub(crate) fn send_gathered(&self) {
        if self.gathered_until.load(Ordering::Relaxed) != 0 {
            let mut shard = self.lock();
            shard.transmit(clock::now());
            self.after_service(&mut shard);
        }
    }

    /// Sends what has waited until the timer.
    pub(super) fn attend_timer(&self) {
        if self.gathered_until.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut shard = self.lock();
        let now = clock::now();
        if shard.is_late(now) {
            shard.transmit(now);
            shard.note_hold(now);
        }
    }
}
