//! The background thread's duty until its next look at the program.
//!
//! | program | duty |
//! |---|---|
//! | waits in an event loop | [`EventLoop`](Duty::EventLoop) |
//! | sleeps on the sockets | [`Timers`](Duty::Timers), [`Standby`](Duty::Standby) after serving |
//! | serves, but was absent while work waited | [`Assist`](Duty::Assist) |
//! | serves | [`Standby`](Duty::Standby) |
//! | does not serve, or has handed over | [`Serve`](Duty::Serve) |

use std::time::Duration;

use roce_transport::time::Instant;

use super::{
    backoff::Backoff,
    times::{ABSENCES, ASSISTS, CHECK_INTERVAL, CHECK_INTERVAL_STEADY, EMPTY_WAKEUPS, STEADY},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Duty {
    /// Checks periodically that the program still polls.
    Standby,
    /// Serves between the calls of a program that polls memory.
    Assist,
    /// Serves timers, and checks periodically that the event loop takes packets.
    EventLoop,
    /// Serves timers; program threads sleep on the sockets.
    Timers,
    /// Serves everything.
    Serve,
}

impl Duty {
    pub(in crate::engine) const fn is_for_packets(self) -> bool {
        !matches!(self, Self::Timers | Self::EventLoop)
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub(in crate::engine) struct Seen {
    /// Calls that served.
    pub(in crate::engine) activity: u64,
    pub(in crate::engine) is_in_loop: bool,
    /// Threads of the program sleep on the sockets.
    pub(in crate::engine) waits_on_sockets: bool,
    pub(in crate::engine) has_handed_over: bool,
}

#[derive(Default, Debug)]
pub(in crate::engine) struct Duties {
    activity: u64,
    /// The program has served since the previous check.
    program_serves: bool,
    /// Consecutive checks of a polling program or event loop.
    looks: u32,
    /// Backoff after an absence that delayed work.
    absence: Backoff,
    loop_absences: u32,
    /// Consecutive checks without service by the event loop.
    loop_pauses: u32,
    /// Backoff during which the event loop is not woken.
    apart: Backoff,
}

impl Duties {
    pub(in crate::engine) fn new(activity: u64) -> Self {
        Self { activity, ..Self::default() }
    }

    pub(in crate::engine) fn decide(&mut self, seen: Seen, now: Instant) -> Duty {
        let serves = seen.activity != self.activity;
        (self.activity, self.program_serves) = (seen.activity, serves);
        let polls = serves && !seen.has_handed_over;
        let duty = match seen {
            Seen { is_in_loop: true, .. } => Duty::EventLoop,
            // a quick waiter soon waits again
            Seen { waits_on_sockets: true, .. } if polls => Duty::Standby,
            Seen { waits_on_sockets: true, .. } => Duty::Timers,
            // even if the program finds nothing left to serve
            Seen { has_handed_over: false, .. } if self.absence.lasts(now) => Duty::Assist,
            _ if polls => Duty::Standby,
            _ => Duty::Serve,
        };
        let is_looked_at = matches!(duty, Duty::Standby | Duty::EventLoop);
        self.looks = if is_looked_at { self.looks + 1 } else { 0 };
        let pauses = duty == Duty::EventLoop && !serves;
        self.loop_pauses = if pauses { self.loop_pauses + 1 } else { 0 };
        duty
    }

    pub(in crate::engine) const fn program_serves(&self) -> bool {
        self.program_serves
    }

    /// Time to the next check on standby. `None`: at once, until a few checks show that an absent
    /// program is back.
    pub(in crate::engine) fn checks_after(&self, now: Instant) -> Option<Duration> {
        let after = if self.looks > STEADY { CHECK_INTERVAL_STEADY } else { CHECK_INTERVAL };
        (!self.absence.is_remembered(now)).then_some(after)
    }

    /// True if a service of timers also checks for absence: at first always, later rarely.
    pub(in crate::engine) const fn checks_now(&self) -> bool {
        const RARELY: u32 = (CHECK_INTERVAL_STEADY.as_micros() / CHECK_INTERVAL.as_micros()) as u32;
        self.looks <= STEADY || self.looks.is_multiple_of(RARELY)
    }

    /// Absent while work waited, present, or `None`: unknown.
    pub(in crate::engine) fn record_look(&mut self, is_absent: Option<bool>, now: Instant) {
        match is_absent {
            Some(true) => self.absence.renew(ASSISTS, now),
            Some(false) => self.absence.miss(STEADY),
            None => {}
        }
    }

    /// An assisted program polls again.
    pub(in crate::engine) fn record_return(&mut self, now: Instant) {
        self.absence.end_now(now);
    }

    /// Records a check of an event loop, which more than `idle` checks without a call end. Returns
    /// whether packets wake it, and the end of its pause if unfit.
    pub(in crate::engine) fn record_loop(
        &mut self,
        is_absent: bool,
        empty_wakeups: u64,
        idle: u32,
        now: Instant,
    ) -> (bool, Option<Instant>) {
        if is_absent {
            (self.loop_absences, self.looks) = (self.loop_absences + 1, 0);
        } else {
            self.loop_absences = 0;
        }
        let is_unfit = self.loop_absences == ABSENCES || empty_wakeups > EMPTY_WAKEUPS;
        if is_unfit {
            self.apart.renew(ASSISTS, now);
        } else if self.program_serves {
            self.apart.miss(STEADY);
        }
        let stays = !self.apart.lasts(now) && self.loop_pauses <= idle;
        (stays, is_unfit.then(|| self.apart.end()))
    }

    /// Leaves the sockets to a program that polls faster than the thread wakes, or is `awaited` to.
    pub(in crate::engine) const fn stands_aside(
        &self,
        duty: Duty,
        received: bool,
        awaited: bool,
    ) -> bool {
        self.program_serves && (!received || awaited) && !matches!(duty, Duty::Assist)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thread {
        duties: Duties,
        now: Instant,
        seen: Seen,
        looks: u32,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::ZERO.plus(Duration::from_secs(1));
            Self { duties: Duties::new(0), now, seen: Seen::default(), looks: 0 }
        }

        fn decide(&mut self) -> Duty {
            self.looks += 1;
            self.duties.decide(self.seen, self.now)
        }

        fn stands_by(&mut self, time: Duration, serves_after: Duration, is_absent: bool) -> Duty {
            let end = self.now.plus(time);
            loop {
                let duty = self.decide();
                if duty != Duty::Standby || self.now >= end {
                    return duty;
                }
                let slept =
                    self.duties.checks_after(self.now).unwrap_or(Duration::from_micros(250));
                self.now = self.now.plus(slept);
                self.seen.activity += u64::from(slept >= serves_after);
                self.duties.record_look(Some(is_absent), self.now);
            }
        }
    }

    const OFTEN: Duration = Duration::from_micros(1);

    #[test]
    fn the_duty_follows_from_what_is_seen() {
        let now = Instant::ZERO.plus(Duration::from_secs(1));
        for bits in 0..32_u32 {
            let is = |bit: u32| bits >> bit & 1 == 1;
            let (serves, was_absent) = (is(0), is(1));
            let mut duties = Duties::new(0);
            if was_absent {
                duties.record_look(Some(true), now);
            }
            let seen = Seen {
                activity: u64::from(serves),
                is_in_loop: is(2),
                waits_on_sockets: is(3),
                has_handed_over: is(4),
            };
            let polls = serves && !seen.has_handed_over;
            let wanted = if seen.is_in_loop {
                Duty::EventLoop
            } else if seen.waits_on_sockets {
                if polls { Duty::Standby } else { Duty::Timers }
            } else if was_absent && !seen.has_handed_over {
                Duty::Assist
            } else if polls {
                Duty::Standby
            } else {
                Duty::Serve
            };
            assert_eq!(duties.decide(seen, now), wanted, "{seen:?}, absent: {was_absent}");
            assert_eq!(duties.program_serves(), serves);
        }
    }

    #[test]
    fn a_program_that_polls_is_looked_at_seldom() {
        let mut thread = Thread::new();
        thread.seen.activity = 1;
        assert_eq!(thread.stands_by(Duration::from_secs(1), OFTEN, false), Duty::Standby);
        let steady = Duration::from_secs(1).as_millis() / CHECK_INTERVAL_STEADY.as_millis();
        assert!(u128::from(thread.looks) <= steady + u128::from(STEADY) + 2, "{}", thread.looks);
    }

    #[test]
    fn a_program_that_stops_polling_is_served_at_the_next_look() {
        let mut thread = Thread::new();
        thread.seen.activity = 1;
        thread.stands_by(Duration::from_millis(100), OFTEN, false);
        let stopped = thread.now;
        thread.seen.activity += 1;
        assert_eq!(thread.stands_by(Duration::from_secs(1), Duration::MAX, false), Duty::Serve);
        assert!(thread.now.since(stopped) <= CHECK_INTERVAL_STEADY);
    }

    #[test]
    fn an_absent_program_is_assisted_longer_each_time_until_it_is_back() {
        let mut thread = Thread::new();
        for length in [ASSISTS[0], ASSISTS[0] * 2, ASSISTS[0] * 4] {
            thread.seen.activity += 1;
            assert_eq!(thread.stands_by(Duration::from_secs(1), OFTEN, true), Duty::Assist);
            let begun = thread.now;
            while thread.decide() == Duty::Assist {
                thread.seen.activity += 1;
                thread.now = thread.now.plus(Duration::from_millis(1));
            }
            assert_eq!(thread.now.since(begun), length);
            assert_eq!(thread.duties.checks_after(thread.now), None, "it is looked at closely");
        }
        let mut duties = thread.duties;
        (0..STEADY - 1).for_each(|_| duties.record_look(Some(false), thread.now));
        (0..STEADY).for_each(|_| duties.record_look(None, thread.now));
        assert_eq!(duties.checks_after(thread.now), None, "nobody knows");
        duties.record_look(Some(false), thread.now);
        assert!(duties.checks_after(thread.now).is_some());
        duties.record_look(Some(true), thread.now);
        assert!(duties.absence.lasts(thread.now.plus(ASSISTS[0] / 2)));
        assert!(!duties.absence.lasts(thread.now.plus(ASSISTS[0])), "it begins anew");
        duties.record_return(thread.now);
        assert!(!duties.absence.lasts(thread.now));
    }

    #[test]
    fn an_event_loop_that_does_not_come_is_one_no_longer() {
        const IDLE: u32 = 64;
        let looks = |absent: &dyn Fn(u32) -> bool, empty_wakeups, serves: bool| {
            let mut thread = Thread::new();
            thread.seen.is_in_loop = true;
            (1..=1000).find(|&look| {
                thread.seen.activity += u64::from(serves);
                assert_eq!(thread.decide(), Duty::EventLoop);
                thread.now = thread.now.plus(CHECK_INTERVAL);
                let (stays, not_before) =
                    thread.duties.record_loop(absent(look), empty_wakeups, IDLE, thread.now);
                assert!(stays || not_before.is_none_or(|end| end > thread.now));
                !stays
            })
        };
        assert_eq!(looks(&|_| false, 0, true), None, "one that comes");
        assert_eq!(looks(&|look| look % ABSENCES != 0, 0, true), None, "or waits for a processor");
        assert_eq!(looks(&|_| true, 0, true), Some(ABSENCES));
        assert_eq!(looks(&|_| false, EMPTY_WAKEUPS + 1, true), Some(1));
        assert_eq!(looks(&|_| false, EMPTY_WAKEUPS, true), None);
        assert_eq!(looks(&|_| false, 0, false), Some(IDLE + 1), "one that does nothing");
    }

    #[test]
    fn an_event_loop_that_comes_is_looked_at_seldom_until_it_does_not() {
        let mut thread = Thread::new();
        thread.seen.is_in_loop = true;
        // counts checks among timer services
        let mut looks = |turns: u32, is_absent| {
            let looks_in = |_: &u32| {
                thread.seen.activity += 1;
                assert_eq!(thread.decide(), Duty::EventLoop);
                let looks = thread.duties.checks_now();
                assert!(!looks || thread.duties.record_loop(is_absent, 0, 64, thread.now).0);
                looks
            };
            (0..turns).filter(looks_in).count()
        };
        for _ in 0..3 {
            assert_eq!(looks(STEADY, false), STEADY as usize);
            let rarely = 100 * CHECK_INTERVAL.as_micros() / CHECK_INTERVAL_STEADY.as_micros();
            assert_eq!(looks(100, false) as u128, rarely);
            while looks(1, true) == 0 {}
        }
    }

    #[test]
    fn the_thread_stands_aside_for_who_polls_faster_than_it_wakes() {
        let mut duties = Duties::new(0);
        let seen = Seen { activity: 1, has_handed_over: true, ..Seen::default() };
        let duty = duties.decide(seen, Instant::ZERO);
        assert_eq!(duty, Duty::Serve);
        for (received, awaited, stands_aside) in
            [(false, false, true), (true, false, false), (true, true, true), (false, true, true)]
        {
            assert_eq!(duties.stands_aside(duty, received, awaited), stands_aside);
            assert!(!duties.stands_aside(Duty::Assist, received, awaited));
        }
        duties.decide(seen, Instant::ZERO);
        assert!(!duties.stands_aside(Duty::Serve, false, false), "it has stopped");
    }
}
