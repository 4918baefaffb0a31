//! The background thread of an engine.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::atomic::Ordering,
    time::Duration,
};

use roce_transport::time::Instant;

use super::{serve::Engine, sleep::thread};
use crate::clock;

/// Time between two looks whether a program still polls.
const LOOK: Duration = Duration::from_millis(1);

/// Number of looks at a program that polls after which they become rarer: each costs the program
/// time.
const STEADY: u32 = 16;

/// Time between two of the rarer looks.
const LOOK_LESS: Duration = Duration::from_millis(4);

/// Time that the thread goes on looking after the last packet before it sleeps.
const LINGER: Duration = Duration::from_micros(50);

/// Longest time that it looks for packets without attending to anything else.
const LINGER_MOST: Duration = Duration::from_millis(10);

/// A yield that takes longer than this has let somebody else run.
const SWITCH: Duration = Duration::from_micros(5);

/// Time for which the thread does not look in vain after that: it sleeps, and leaves the processor to
/// those who can use it.
const CROWDED: Duration = Duration::from_millis(10);

/// Role of the background thread until its next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The program polls. The thread looks now and then whether it still does.
    Aside,
    /// Threads of the program sleep on the link's descriptors themselves. This one serves timers.
    Timers,
    /// No other thread serves the adapter.
    Serve,
}

/// Whether the thread looks for the next packet or sleeps until it comes.
#[derive(Debug, Default)]
struct Patience {
    crowded_until: Instant,
}

impl Patience {
    /// True if it looks once more, so long after the last packet.
    fn lasts(&self, idle: Duration, now: Instant) -> bool {
        idle <= LINGER && now >= self.crowded_until
    }

    /// It has left the processor to others, if there were any, for so long.
    fn note_yield(&mut self, took: Duration, now: Instant) {
        if took > SWITCH {
            self.crowded_until = now.plus(CROWDED);
        }
    }
}

impl Engine {
    /// The background thread's work. If it panics, which is a bug of ours, nobody else hears what
    /// arrives: the device is lost, and says so.
    pub(super) fn run(&self) {
        if panic::catch_unwind(AssertUnwindSafe(|| self.serve_until_stopped())).is_err() {
            // what is broken may have even this panic
            let _ = panic::catch_unwind(AssertUnwindSafe(|| self.lock().lose(clock::now())));
        }
    }

    /// Serves the adapter whenever the program does not, until the engine is stopped.
    pub(super) fn serve_until_stopped(&self) {
        let mut seen = self.activity.load(Ordering::Relaxed);
        let mut looks = 0;
        let mut patience = Patience::default();
        loop {
            self.clear_wakeup();
            // looked at after the wake-up: the thread that stops the engine sets it before, and
            // wakes once
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let activity = self.activity.load(Ordering::Relaxed);
            let program_serves = activity != seen;
            seen = activity;
            self.attend();
            let mode = self.mode(program_serves);
            if mode == Mode::Aside {
                looks += 1;
                let _ = self.sleep(false, Some(if looks > STEADY { LOOK_LESS } else { LOOK }));
                continue;
            }
            looks = 0;
            let received = mode == Mode::Serve && self.linger(activity, &mut patience);
            if self.serve_and_sleep(mode, program_serves && !received).is_err() {
                thread::sleep(LOOK); // nothing that waiting can fail with goes away at once
            }
        }
    }

    fn mode(&self, program_serves: bool) -> Mode {
        if self.drivers.load(Ordering::SeqCst) > 0 {
            Mode::Timers
        } else if program_serves && !self.handed_over.load(Ordering::SeqCst) {
            Mode::Aside
        } else {
            Mode::Serve
        }
    }

    /// Serves timers, then sleeps until the next one, or until something arrives if no other thread
    /// waits for that. `stands_aside`: the program polls faster than this thread wakes, so that the
    /// adapter is left to it until it hands over again.
    fn serve_and_sleep(&self, mode: Mode, stands_aside: bool) -> io::Result<()> {
        let (deadline, for_packets, quiet) = {
            let mut shard = self.lock();
            let now = clock::now();
            shard.serve_timers(now);
            shard.note_hold(now);
            if stands_aside {
                self.handed_over.store(false, Ordering::SeqCst);
            }
            if shard.is_due() {
                drop(shard);
                self.explain();
                return Ok(()); // there is more to send
            }
            let publish_at = shard.publish_at();
            shard.told = publish_at.is_some();
            let deadline = [shard.deadline(), publish_at].into_iter().flatten().min();
            self.sleeps_until
                .store(deadline.map_or(u64::MAX, Instant::as_nanos).max(1), Ordering::SeqCst);
            let for_packets = mode == Mode::Serve && !shard.is_lost();
            (deadline, for_packets, !for_packets || shard.park())
        };
        self.explain();
        let timeout = deadline.map(|deadline| deadline.since(clock::now()));
        let result = if mode == Mode::Timers {
            // a thread that leaves the descriptors does not say so; this one looks now and then
            self.sleep(false, Some(timeout.map_or(LOOK * 10, |timeout| timeout.min(LOOK * 10))))
        } else if quiet {
            self.sleep(for_packets, timeout)
        } else {
            Ok(())
        };
        if for_packets {
            self.lock().unpark();
        }
        self.sleeps_until.store(0, Ordering::SeqCst);
        result
    }

    /// Serves as long as something keeps arriving or is left to send, and a little longer, unless
    /// others want the processor: to sleep and to be woken takes longer than most packets are apart.
    /// Ends when the program serves by itself. Returns whether anything came.
    fn linger(&self, activity: u64, patience: &mut Patience) -> bool {
        let start = clock::now();
        let mut last = start;
        while self.activity.load(Ordering::Relaxed) == activity && !self.stop.load(Ordering::SeqCst)
        {
            self.let_others_in();
            let now = clock::now();
            let (received, is_due) = {
                let mut shard = self.lock();
                (self.serve(&mut shard), shard.is_due())
            };
            self.explain();
            if now.since(start) > LINGER_MOST {
                break;
            }
            if received > 0 || is_due {
                last = now;
            } else if patience.lasts(now.since(last), now) {
                let before = clock::now();
                thread::yield_now();
                let after = clock::now();
                patience.note_yield(after.since(before), after);
            } else {
                break;
            }
        }
        last != start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_the_processor_sleeps_at_once() {
        let mut patience = Patience::default();
        let now = Instant::ZERO.plus(Duration::from_secs(1));
        assert!(patience.lasts(LINGER, now));
        assert!(!patience.lasts(LINGER + Duration::from_nanos(1), now));
        patience.note_yield(SWITCH, now);
        assert!(patience.lasts(Duration::ZERO, now));
        patience.note_yield(SWITCH * 2, now);
        assert!(!patience.lasts(Duration::ZERO, now));
        patience.note_yield(Duration::ZERO, now.plus(CROWDED / 2));
        assert!(!patience.lasts(Duration::ZERO, now.plus(CROWDED / 2)));
        assert!(patience.lasts(Duration::ZERO, now.plus(CROWDED)));
    }
}
