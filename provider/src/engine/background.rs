use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::atomic::Ordering,
};

use roce_transport::time::Instant;

use super::{
    poller::Watched,
    processor::{hint, thread},
    program::increment,
    schedule::{
        duty::{Duties, Duty, Seen},
        spin::SpinPolicy,
        times::{ABSENT, CHECK_INTERVAL, LINGER_MOST, SWITCH},
    },
    serve::Engine,
    sleep::{IDLE_LOOKS, PAUSE},
    waiting::yield_to_others,
};
use crate::clock;

impl Engine {
    /// A panic loses the device: nothing would serve arrivals.
    pub(super) fn run(&self) {
        if panic::catch_unwind(AssertUnwindSafe(|| self.serve_until_stopped())).is_err() {
            // the broken state may panic too
            let _ = panic::catch_unwind(AssertUnwindSafe(|| self.lock().lose(clock::now())));
        }
    }

    /// Serves whenever the program does not.
    pub(super) fn serve_until_stopped(&self) {
        let mut duties = Duties::new(self.calls.activity.load(Ordering::Relaxed));
        let mut spin = SpinPolicy::new(SWITCH);
        let mut response = None;
        loop {
            self.clear_wakeup();
            // after clearing the wakeup: `stop` is set before the only wakeup
            if self.background.stop.load(Ordering::SeqCst) {
                return;
            }
            let activity = self.calls.activity.load(Ordering::Relaxed);
            self.attend_timer(&mut response);
            self.attend();
            let now = clock::now();
            let duty = duties.decide(self.seen(activity), now);
            if duty == Duty::Standby {
                if let Some(after) = duties.checks_after(now) {
                    let _ = self.sleep(false, Some(after));
                }
                let is_absent = self.is_absent(&mut response);
                duties.record_look(is_absent, clock::now());
                continue;
            }
            if duty == Duty::EventLoop {
                self.serve_or_wait(duty, false);
                if !duties.checks_now() {
                    continue;
                }
                let is_absent = self.is_absent(&mut response) == Some(true);
                let empty_wakeups = self.event_loop.empty_wakeups.load(Ordering::Relaxed);
                let (stays, not_before) =
                    duties.record_loop(is_absent, empty_wakeups, IDLE_LOOKS, clock::now());
                if let Some(end) = not_before {
                    self.event_loop.not_before.store(end.as_nanos(), Ordering::Relaxed);
                }
                if !stays {
                    self.leave_loop();
                }
                continue;
            }
            let received = match duty {
                Duty::Assist => self.linger_beside(&mut spin),
                Duty::Serve => self.linger(activity, &mut spin),
                Duty::Standby | Duty::EventLoop | Duty::Timers => false,
            };
            if duty == Duty::Assist
                && !received
                && self.calls.activity.load(Ordering::Relaxed) != activity
            {
                duties.record_return(clock::now());
                continue;
            }
            if received && !duties.program_serves() {
                increment(&self.background.found);
            }
            let stands_aside = duties.stands_aside(duty, received, self.is_awaited(now));
            self.serve_or_wait(duty, stands_aside);
        }
    }

    fn seen(&self, activity: u64) -> Seen {
        Seen {
            activity,
            is_in_loop: self.is_in_loop(),
            has_handed_over: self.waits.handed_over.load(Ordering::SeqCst),
            waits_on_sockets: self.waits.socket_waiters.load(Ordering::SeqCst) > 0,
        }
    }

    /// True if arrivals went unserved; `None`: no arrivals, too short a time, or the polling thread
    /// lacks a processor.
    fn is_absent(&self, response: &mut Option<Watched>) -> Option<bool> {
        let (before, start) = (self.calls.served(), clock::now());
        let watched = self.poller.watch();
        self.sleep_beside_timer(ABSENT);
        self.attend_timer(response);
        let now = clock::now();
        if self.is_awaited(now) || now.since(start) < ABSENT {
            return None; // a waiting thread is expected, or the timer ended the sleep
        }
        let received = match self.try_lock() {
            Some(mut shard) if self.calls.served() == before => self.serve(&mut shard, false),
            _ => return Some(false),
        };
        self.explain();
        if received > 0 {
            increment(&self.background.found);
        }
        let is_absent = received > 0 && !watched.is_some_and(|it| it.lacks_processor());
        is_absent.then_some(true)
    }

    fn serve_or_wait(&self, duty: Duty, stands_aside: bool) {
        if self.serve_and_sleep(duty, stands_aside).is_err() {
            thread::sleep(CHECK_INTERVAL); // no error of waiting goes away at once
        }
    }

    /// Serves timers, then sleeps until the next, or arrivals that no other thread awaits; beside
    /// an event loop for [`CHECK_INTERVAL`]. `stands_aside`: leaves the sockets to the program.
    fn serve_and_sleep(&self, duty: Duty, stands_aside: bool) -> io::Result<()> {
        let (deadline, for_packets, quiet) = {
            let mut shard = self.lock();
            let now = clock::now();
            let waits = duty == Duty::Assist && shard.is_corked() && !shard.is_late(now);
            if waits {
                self.wake_later(&mut shard, now);
            } else {
                shard.serve_timers(now);
                shard.count_hold(now);
            }
            if stands_aside {
                self.waits.handed_over.store(false, Ordering::SeqCst);
            }
            if shard.is_due() && !waits {
                drop(shard);
                self.explain();
                return Ok(());
            }
            shard.publication.know();
            let publish_at = shard.publication.due();
            let deadline = if duty == Duty::EventLoop {
                // the program serves earlier timers, without a wakeup
                Some(now.plus(CHECK_INTERVAL))
            } else {
                let deadline = [shard.deadline(), publish_at].into_iter().flatten().min();
                let until = deadline.map_or(u64::MAX, Instant::as_nanos).max(1);
                self.background.sleeps_until.store(until, Ordering::SeqCst);
                deadline
            };
            let for_packets = duty.is_for_packets() && !shard.is_lost();
            (deadline, for_packets, !for_packets || shard.park())
        };
        self.explain();
        let timeout = deadline.map(|deadline| deadline.since(clock::now()));
        let result = if duty == Duty::Timers {
            self.waits.background_yields.store(true, Ordering::SeqCst);
            // the last waiter may have left, or is an event loop
            let is_alone =
                self.waits.socket_waiters.load(Ordering::SeqCst) == 0 || self.is_in_loop();
            let result = if is_alone { Ok(()) } else { self.sleep(false, timeout) };
            self.waits.background_yields.store(false, Ordering::SeqCst);
            result
        } else if quiet {
            self.sleep(for_packets, timeout)
        } else {
            Ok(())
        };
        if for_packets {
            self.lock().unpark();
        }
        self.background.sleeps_until.store(0, Ordering::SeqCst);
        result
    }

    /// Spins until packets stop, others want the processor, or the program serves (`activity`
    /// changes, or an event loop begins). True if anything arrived.
    fn linger(&self, activity: u64, spin: &mut SpinPolicy) -> bool {
        let start = clock::now();
        let mut last = start;
        while self.calls.activity.load(Ordering::Relaxed) == activity
            && !self.is_in_loop()
            && !self.background.stop.load(Ordering::SeqCst)
        {
            self.let_others_in();
            let now = clock::now();
            let (received, is_due) = {
                let mut shard = self.lock();
                (self.serve(&mut shard, false), shard.is_due())
            };
            self.explain();
            if now.since(start) > LINGER_MOST {
                break;
            }
            if received > 0 || is_due {
                last = now;
            } else if spin.lasts(now.since(last), now) {
                yield_to_others(spin);
            } else {
                break;
            }
        }
        last != start
    }

    /// Serves between calls of a program that polls memory. Acknowledgements of WRITEs wait for the
    /// reply, so the peer still polls when it comes.
    fn linger_beside(&self, spin: &mut SpinPolicy) -> bool {
        let start = clock::now();
        let mut last = start;
        let mut before = self.calls.served();
        let mut pause = 0..PAUSE;
        while self.calls.served() == before && pause.next().is_some() {
            hint::spin_loop(); // the program may poll
        }
        let mut came = false;
        while !self.background.stop.load(Ordering::SeqCst) {
            self.let_others_in();
            let now = clock::now();
            let calls = self.calls.served();
            if calls == before {
                let mut shard = self.lock();
                let waits = shard.is_corked() && !shard.is_late(now);
                let received = if waits { 0 } else { self.serve(&mut shard, true) };
                if waits || received > 0 || shard.is_due() {
                    last = now;
                }
                came |= received > 0;
            }
            before = calls;
            self.explain();
            if now.since(start) > LINGER_MOST || !spin.lasts(now.since(last), now) {
                break;
            }
            yield_to_others(spin);
        }
        came
    }
}
