//! Programs with event loops.
//!
//! Such a program sleeps in epoll on a channel's descriptor and takes events without waiting. If it
//! does so often, packets make the descriptor readable and the program serves, which saves a wakeup
//! of the background thread. That thread takes over if work waits, the program stays away, or
//! wakeups find nothing.
//!
//! `models/` checks the concurrency.

use std::sync::atomic::Ordering;

use super::{loop_state::LoopMode, program::increment, schedule::times::LOOP_PAUSE, serve::Engine};
use crate::clock;

impl Engine {
    fn change_mode(&self, from: LoopMode, to: LoopMode) -> Result<u32, u32> {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        self.event_loop.mode.compare_exchange(from as u32, to as u32, success, failure)
    }

    /// True if packets wake the program; false while threads sleep on descriptors that only others
    /// make readable.
    pub(crate) fn enter_loop(&self) -> bool {
        if let Err(mode) = self.change_mode(LoopMode::Detached, LoopMode::Changing) {
            return mode == LoopMode::Attached as u32;
        }
        let is_free = self.has_background()
            && self.is_of_this_process()
            && self.waits.sleepers.load(Ordering::SeqCst) == 0
            && self.event_loop.not_before.load(Ordering::Relaxed) <= clock::now().as_nanos();
        if !is_free || !self.join_loop() {
            self.event_loop.mode.store(LoopMode::Detached as u32, Ordering::SeqCst);
            return false;
        }
        self.waits.socket_waiters.fetch_add(1, Ordering::SeqCst);
        let quiet = self.lock().park();
        self.event_loop.empty_wakeups.store(0, Ordering::Relaxed);
        self.waits.handed_over.store(false, Ordering::SeqCst);
        self.event_loop.mode.store(LoopMode::Attached as u32, Ordering::SeqCst);
        if self.waits.background_yields.swap(false, Ordering::SeqCst) {
            self.wake_background(); // took the event loop for a thread on the sockets
        }
        if !quiet {
            self.progress(); // earlier arrivals wake nobody
        }
        true
    }

    pub(crate) fn leave_loop(&self) {
        if self.change_mode(LoopMode::Attached, LoopMode::Changing).is_err() {
            return;
        }
        self.detach_loop();
        if self.are_sockets_readable() {
            self.event_loop.may_have_woken.store(true, Ordering::Relaxed); // already woken
        }
        self.lock().unpark();
        self.waits.handed_over.store(true, Ordering::SeqCst);
        self.end_socket_wait();
        self.event_loop.mode.store(LoopMode::Detached as u32, Ordering::SeqCst);
    }

    /// Suspends wakeups before an object goes: its arrivals have no event.
    pub(crate) fn pause_loop(&self) {
        if self.is_in_loop() {
            let end = clock::now().plus(LOOP_PAUSE);
            self.event_loop.not_before.store(end.as_nanos(), Ordering::Relaxed);
            self.leave_loop();
        }
    }

    /// A forked child leaves the descriptor as it is: the parent shares it.
    pub(super) fn abandon_loop(&self) {
        self.event_loop.mode.store(LoopMode::Detached as u32, Ordering::SeqCst);
    }

    pub(crate) fn is_in_loop(&self) -> bool {
        self.event_loop.mode.load(Ordering::SeqCst) == LoopMode::Attached as u32
    }

    /// Call under the lock.
    pub(super) fn record_wakeup(&self) {
        if self.event_loop.mode.load(Ordering::SeqCst) != LoopMode::Detached as u32 {
            self.event_loop.may_have_woken.store(true, Ordering::Relaxed);
        }
    }

    /// Serves until `is_there` or nothing arrives; true if arrivals may have woken the program.
    /// Without `looks` at the sockets, a system call, a wakeup without messages is missed.
    pub(crate) fn serve_in_loop(&self, looks: bool, is_there: impl Fn() -> bool) -> bool {
        let in_loop = self.is_in_loop();
        let mut is_woken = in_loop && looks && self.are_sockets_readable();
        if in_loop {
            self.lock().look();
        }
        while self.progress() > 0 && !is_there() {
            is_woken = true;
        }
        if !is_woken && !is_there() {
            drop(self.lock()); // the holder may have taken the arrival
        }
        is_woken | self.event_loop.may_have_woken.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn record_taken(&self) {
        self.event_loop.may_have_woken.store(false, Ordering::Relaxed);
    }

    pub(crate) fn add_event(&self) {
        self.event_loop.untaken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_events(&self, count: usize) {
        self.event_loop.untaken.fetch_sub(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn take_event(&self) {
        self.remove_events(1);
        self.event_loop.takes.store(true, Ordering::Relaxed);
    }

    /// True while the program has events left to take: it serves with the last.
    pub(crate) fn has_untaken(&self) -> bool {
        let not_before = || self.event_loop.untaken_not_before.load(Ordering::Relaxed);
        self.event_loop.takes.load(Ordering::Relaxed)
            && self.event_loop.untaken.load(Ordering::Relaxed) > 0
            && self.has_background()
            && (not_before() == 0 || not_before() <= clock::now().as_nanos())
    }

    pub(crate) fn record_event(&self) {
        self.event_loop.empty_wakeups.store(0, Ordering::Relaxed);
    }

    pub(crate) fn count_empty_wakeup(&self) {
        increment(&self.event_loop.empty_wakeups);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use roce_transport::work::NotifyKind;

    use crate::{Device, OpenOptions};

    #[test]
    fn a_child_leaves_the_descriptor_as_it_is() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(16, Some(&channel)).unwrap();
        let _ = channel.as_fd();
        (0..64).for_each(|_| channel.count_use(|| true));
        cq.req_notify(NotifyKind::Next);
        let engine = &context.inner.engine;
        assert!(engine.is_in_loop());
        engine.abandon_loop(); // as the copy in a child does
        engine.pause_loop();
        engine.leave_loop();
        assert!(!engine.join_loop(), "the sockets are in it already");
        engine.detach_loop();
        assert!(engine.join_loop());
    }
}
