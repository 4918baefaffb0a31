//! The background thread of an engine.

use std::{
    hint, io,
    panic::{self, AssertUnwindSafe},
    sync::atomic::Ordering,
    time::Duration,
};

use roce_transport::time::Instant;

use super::{
    event_loop::IN_VAIN,
    patience::Patience,
    poller::Watched,
    program::grow,
    serve::Engine,
    sleep::{IDLE_LOOKS, PAUSE, thread},
    spell::Spell,
    waiting::yield_to_others,
};
use crate::clock;

/// Time between two looks whether a program still polls.
const LOOK: Duration = Duration::from_millis(1);

/// Number of looks at a program that polls after which they become rarer: each costs the program
/// time.
const STEADY: u32 = 16;

/// Time between two of the rarer looks.
const LOOK_LESS: Duration = Duration::from_millis(4);

/// Number of looks in a row at which a program's event loop is found absent, after which the thread serves.
/// Once or twice it has perhaps been woken, and waits for a processor.
const ABSENCES: u32 = 4;

/// Longest time that it looks for packets without attending to anything else.
const LINGER_MOST: Duration = Duration::from_millis(10);

/// A yield that takes longer than this has let somebody else run: it may be the program itself.
const SWITCH: Duration = Duration::from_micros(5);

/// Time in which a program that polls serves, else it is absent.
const ABSENT: Duration = Duration::from_micros(250);

/// Time for which the thread serves beside a program that polls, but that was absent while something
/// waited; twice as long each time that it is absent still. The first, and the longest.
const BESIDE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Role of the background thread until its next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The program polls. The thread looks now and then whether it still does.
    Aside,
    /// The program polls, but not always: it looks at its memory between, say, for what a peer
    /// writes there.
    Beside,
    /// The program waits in an event loop, on the sockets, too. The thread serves timers, and looks now and
    /// then whether the program comes for what arrives.
    Loop,
    /// Threads of the program sleep on the link's descriptors themselves. This one serves timers.
    Timers,
    /// No other thread serves the adapter.
    Serve,
}

/// Whether the program was absent while something waited.
#[derive(Debug, Default)]
struct Absence(Spell);

impl Absence {
    fn lasts(&self, now: Instant) -> bool {
        self.0.lasts(now)
    }

    /// True if it has ended, and a few looks have not yet told whether the program is back.
    fn is_in_doubt(&self, now: Instant) -> bool {
        self.0.is_remembered(now)
    }

    /// The program is back.
    fn end(&mut self, now: Instant) {
        self.0.end_now(now);
    }

    /// The program was looked at, and was absent or not, or nobody knows.
    fn note(&mut self, is_absent: Option<bool>, now: Instant) {
        match is_absent {
            Some(true) => self.0.renew(BESIDE, now),
            Some(false) => self.0.miss(STEADY),
            None => {}
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
        let mut patience = Patience::new(SWITCH);
        let mut absence = Absence::default();
        let mut absences = 0;
        let mut answer = None;
        let mut apart = Spell::default();
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
            self.attend_timer(&mut answer);
            self.attend();
            let now = clock::now();
            let mode = self.mode(program_serves, absence.lasts(now));
            if mode == Mode::Aside {
                looks += 1;
                if !absence.is_in_doubt(now) {
                    let _ = self.sleep(false, Some(if looks > STEADY { LOOK_LESS } else { LOOK }));
                }
                absence.note(self.is_absent(&mut answer), clock::now());
                continue;
            }
            if mode == Mode::Loop {
                looks = if program_serves { 0 } else { looks + 1 };
                if self.serve_and_sleep(mode, false).is_err() {
                    thread::sleep(LOOK);
                }
                absences = if self.is_absent(&mut answer) == Some(true) { absences + 1 } else { 0 };
                let now = clock::now();
                if absences == ABSENCES || self.loop_in_vain.load(Ordering::Relaxed) > IN_VAIN {
                    apart.renew(BESIDE, now);
                    self.loop_not_before.store(apart.end().as_nanos(), Ordering::Relaxed);
                } else if program_serves {
                    apart.miss(STEADY);
                }
                if apart.lasts(now) || looks > IDLE_LOOKS {
                    self.leave_loop();
                }
                continue;
            }
            looks = 0;
            let received = match mode {
                Mode::Beside => self.linger_beside(&mut patience),
                Mode::Serve => self.linger(activity, &mut patience),
                Mode::Aside | Mode::Loop | Mode::Timers => false,
            };
            if mode == Mode::Beside
                && !received
                && self.activity.load(Ordering::Relaxed) != activity
            {
                absence.end(clock::now());
                continue;
            }
            if received && !program_serves {
                grow(&self.found);
            }
            let stands_aside =
                program_serves && (!received || self.is_awaited(now)) && mode != Mode::Beside;
            if self.serve_and_sleep(mode, stands_aside).is_err() {
                thread::sleep(LOOK); // nothing that waiting can fail with goes away at once
            }
        }
    }

    fn mode(&self, program_serves: bool, was_absent: bool) -> Mode {
        if self.is_in_loop() {
            return Mode::Loop;
        }
        let handed_over = self.handed_over.load(Ordering::SeqCst);
        if self.drivers.load(Ordering::SeqCst) > 0 {
            // one that has what it waits for soon comes back as soon
            if program_serves && !handed_over { Mode::Aside } else { Mode::Timers }
        } else if was_absent && !handed_over {
            Mode::Beside // though it finds all done, and has no need to serve
        } else if !program_serves || handed_over {
            Mode::Serve
        } else {
            Mode::Aside
        }
    }

    /// True if something waits, and no thread of the program comes for it; `None` if nothing does, or if the
    /// thread that polls would come and has no processor, of which this one would take yet more.
    fn is_absent(&self, answer: &mut Option<Watched>) -> Option<bool> {
        let before = self.calls();
        let watched = self.poller.watch();
        self.sleep_beside_timer(ABSENT);
        self.attend_timer(answer);
        if self.is_awaited(clock::now()) {
            return None; // it comes for it without a call
        }
        let received = match self.try_lock() {
            Some(mut shard) if self.calls() == before => self.serve(&mut shard, false),
            _ => return Some(false),
        };
        self.explain();
        if received > 0 {
            grow(&self.found);
        }
        let is_absent = received > 0 && !watched.is_some_and(|it| it.lacks_processor());
        is_absent.then_some(true)
    }

    /// Serves timers, then sleeps until the next one, or until something arrives if no other thread
    /// waits for that. `stands_aside`: the program polls faster than this thread wakes, so that the
    /// adapter is left to it until it hands over again.
    fn serve_and_sleep(&self, mode: Mode, stands_aside: bool) -> io::Result<()> {
        let (deadline, for_packets, quiet) = {
            let mut shard = self.lock();
            let now = clock::now();
            let waits = mode == Mode::Beside && shard.gathers() && !shard.is_late(now);
            if waits {
                self.wake_later(&mut shard, now);
            } else {
                shard.serve_timers(now);
                shard.note_hold(now);
            }
            if stands_aside {
                self.handed_over.store(false, Ordering::SeqCst);
            }
            if shard.is_due() && !waits {
                drop(shard);
                self.explain();
                return Ok(()); // there is more to send
            }
            let publish_at = shard.publish_at();
            shard.told = publish_at.is_some();
            let look_at = (mode == Mode::Loop).then(|| now.plus(LOOK));
            let deadline = [shard.deadline(), publish_at, look_at].into_iter().flatten().min();
            self.sleeps_until
                .store(deadline.map_or(u64::MAX, Instant::as_nanos).max(1), Ordering::SeqCst);
            let for_packets = !matches!(mode, Mode::Timers | Mode::Loop) && !shard.is_lost();
            (deadline, for_packets, !for_packets || shard.park())
        };
        self.explain();
        let timeout = deadline.map(|deadline| deadline.since(clock::now()));
        let result = if mode == Mode::Timers {
            self.leaves_sockets.store(true, Ordering::SeqCst);
            // the last of them may have left before it could find this, or it is an event loop
            let is_alone = self.drivers.load(Ordering::SeqCst) == 0 || self.is_in_loop();
            let result = if is_alone { Ok(()) } else { self.sleep(false, timeout) };
            self.leaves_sockets.store(false, Ordering::SeqCst);
            result
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
    /// Ends when the program serves by itself, which changes its `activity`. Returns whether anything
    /// came.
    fn linger(&self, activity: u64, patience: &mut Patience) -> bool {
        let start = clock::now();
        let mut last = start;
        while self.activity.load(Ordering::Relaxed) == activity && !self.stop.load(Ordering::SeqCst)
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
            } else if patience.lasts(now.since(last), now) {
                yield_to_others(patience);
            } else {
                break;
            }
        }
        last != start
    }

    /// The same beside a program that looks at its memory, whenever it makes no call. What acknowledges the
    /// peer's WRITEs may wait for its answer, as when it polls: then the peer still polls for that when the
    /// answer comes, and needs nobody beside it.
    fn linger_beside(&self, patience: &mut Patience) -> bool {
        let start = clock::now();
        let mut last = start;
        let mut before = self.calls();
        let mut pause = 0..PAUSE;
        while self.calls() == before && pause.next().is_some() {
            hint::spin_loop(); // it polls, perhaps
        }
        let mut came = false;
        while !self.stop.load(Ordering::SeqCst) {
            self.let_others_in();
            let now = clock::now();
            let calls = self.calls();
            if calls == before {
                let mut shard = self.lock();
                let waits = shard.gathers() && !shard.is_late(now);
                let received = if waits { 0 } else { self.serve(&mut shard, true) };
                if waits || received > 0 || shard.is_due() {
                    last = now;
                }
                came |= received > 0;
            }
            before = calls;
            self.explain();
            if now.since(start) > LINGER_MOST || !patience.lasts(now.since(last), now) {
                break;
            }
            yield_to_others(patience);
        }
        came
    }

    /// Number of calls of the program, of either kind.
    fn calls(&self) -> [u64; 2] {
        [&self.activity, &self.commands].map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_lasts_longer_each_time_until_the_program_is_back() {
        let mut absence = Absence::default();
        let mut now = Instant::ZERO.plus(Duration::from_secs(1));
        assert!(!absence.lasts(now) && !absence.is_in_doubt(now));
        for length in [BESIDE[0], BESIDE[0] * 2, BESIDE[0] * 4] {
            absence.note(Some(true), now);
            assert!(absence.lasts(now.plus(length / 2)));
            now = now.plus(length);
            assert!(!absence.lasts(now) && absence.is_in_doubt(now));
        }
        (0..STEADY - 1).for_each(|_| absence.note(Some(false), now));
        (0..STEADY).for_each(|_| absence.note(None, now));
        assert!(absence.is_in_doubt(now));
        absence.note(Some(false), now);
        assert!(!absence.is_in_doubt(now));
        absence.note(Some(true), now);
        assert!(absence.lasts(now.plus(BESIDE[0] / 2)) && !absence.lasts(now.plus(BESIDE[0])));
    }
}
