//! Corking: requests wait for later ones, to leave with one system call, which costs as much for
//! one small datagram as for a run.
//!
//! As in TCP autocorking, the first small request leaves at once; close successors wait for
//! - the next poll of an empty completion queue, or any call but a post,
//! - a full run,
//! - or the first post or poll after [`CORK`]; without one, a timer flushes after [`CORK_TIMER`]
//!   and corking pauses.
//!
//! Acknowledgements wait for the program's reply, if it replied to the previous message within
//! [`CLOSELY`] and posted only receives in between. A reply never waits.
//!
//! In an event loop requests wait while the program has further events to take, at most
//! [`TOGETHER`]. After the last, only those of long series do: the program may sleep.
//!
//! Only socket traffic of polling programs is corked. Through memory, acknowledgements wait if the
//! peer sleeps and would be woken, or for WRITEs to programs that poll memory.

use std::{mem, time::Duration};

use roce_transport::{adapter::TransmitLimits, time::Instant};

use super::{
    backoff::Backoff,
    times::{
        ACK_TIMER, APART, CLOSELY, CORK, CORK_TIMER, HEADERS, IN_TIME, LARGEST, POLLS, TOGETHER,
        UNCORKED, UNSERVED,
    },
};

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Load {
    requests: usize,
    bytes: usize,
    largest: usize,
}

impl Load {
    pub(in crate::engine) fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes + HEADERS;
        self.largest = self.largest.max(bytes);
    }

    pub(in crate::engine) const fn requests(&self) -> u64 {
        self.requests as u64
    }
}

/// Next step of a posting program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Next {
    /// Polls, or goes on posting.
    Polls,
    TakesEvent,
    Sleeps,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::engine) enum SendPath {
    /// Through memory, peer awake.
    #[default]
    Memory,
    /// Through memory, with a system call to wake the peer.
    Wakeup,
    Call,
}

#[derive(Debug, Default)]
pub(in crate::engine) struct Cork {
    /// Largest run of the link; `None`: corking is off.
    run: Option<TransmitLimits>,
    waiting: Waiting,
    /// Latest expiry of the timer.
    timer_at: Instant,
    posts: Posts,
    responses: Responses,
    /// Latest service by any thread.
    served_at: Instant,
    sent: SendPath,
    /// Backoff after the timer had to flush.
    uncorked: Backoff,
    /// The same, for a program with events to take.
    event_pause: Backoff,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: usize,
    bytes: usize,
    acknowledgements: bool,
    /// The program takes events, and sends everything with the last.
    events: bool,
    until: Instant,
}

#[derive(Debug, Default)]
struct Posts {
    ended_at: Instant,
    /// Polls, and the time of the latest poll or of a post in the series after it.
    polls: u64,
    polled_at: Instant,
    /// Posts in close succession.
    series: usize,
    /// The series goes on, and the program polls or the series is long.
    in_series: bool,
}

#[derive(Debug, Default)]
struct Responses {
    /// When messages to acknowledge were found; `None` after the program's next call.
    found_at: Option<Instant>,
    /// Only WRITEs to memory were found.
    written: bool,
    /// The program replied to the latest ones.
    expected: bool,
    /// The program has lost the processor since.
    excused: bool,
}

impl Cork {
    /// Needs a background thread; the default never corks.
    pub(in crate::engine) fn new(limits: TransmitLimits) -> Self {
        Self { run: (limits.segments > 1).then_some(limits), ..Self::default() }
    }

    pub(in crate::engine) const fn is_possible(&self) -> bool {
        self.run.is_some()
    }

    pub(in crate::engine) const fn sent(&self) -> SendPath {
        self.sent
    }

    pub(in crate::engine) fn until(&self) -> Option<Instant> {
        self.is_corked().then_some(self.waiting.until)
    }

    pub(in crate::engine) const fn is_corked(&self) -> bool {
        self.waiting.requests > 0 || self.waiting.acknowledgements
    }

    pub(in crate::engine) const fn holds_requests(&self) -> bool {
        self.waiting.requests > 0
    }

    /// The program polls without a reply to its latest completion.
    pub(in crate::engine) fn count_poll(&mut self) {
        if self.responses.found_at.take().is_some() {
            self.responses.expected = false;
        }
    }

    /// The program finds messages, only WRITEs if `written`; true if acknowledgements wait.
    pub(in crate::engine) fn find(&mut self, now: Instant, written: bool) -> bool {
        if !self.is_possible() {
            return false;
        }
        let expected = self.responses.expected;
        self.responses = Responses { found_at: Some(now), written, expected, excused: false };
        let may_wait = self.sent != SendPath::Memory || written;
        self.waiting.acknowledgements = may_wait && expected && !self.uncorked.lasts(now);
        if self.waiting.acknowledgements {
            self.waiting.until = now.plus(CORK);
        }
        self.waiting.acknowledgements
    }

    pub(in crate::engine) fn record_found(&mut self, now: Instant) {
        if let Some(at) = &mut self.responses.found_at {
            *at = now;
        }
    }

    /// Timer delay for newly corked packets; `None` if set already.
    pub(in crate::engine) fn set_timer(&mut self, now: Instant) -> Option<Duration> {
        let after = match self.waiting.acknowledgements || self.waiting.events {
            true if self.timer_at >= now.plus(CORK_TIMER) => return None,
            true => ACK_TIMER,
            false => CORK_TIMER,
        };
        self.timer_at = now.plus(after);
        Some(after)
    }

    /// True if the load waits; else everything leaves.
    pub(in crate::engine) fn post(
        &mut self,
        now: Instant,
        load: Load,
        polls: u64,
        next: Next,
    ) -> bool {
        let Some(run) = self.run else { return false };
        self.posts.record(now, polls, run.segments);
        if let Some(found_at) = self.responses.found_at.take() {
            // a program known to reply, or to poll memory, may have lost the processor briefly
            let is_known = self.responses.expected || self.responses.written;
            let closely = if is_known { CORK_TIMER } else { CLOSELY };
            self.responses.expected = self.responses.excused || now.since(found_at) <= closely;
        }
        if self.waiting.acknowledgements {
            return false; // acknowledgements leave with the reply
        }
        let is_followed =
            self.posts.in_series && (next != Next::Sleeps || self.posts.series >= run.segments);
        let may_wait = is_followed && self.sent == SendPath::Call && !self.uncorked.lasts(now);
        if !may_wait || load.largest > LARGEST {
            return false;
        }
        let Waiting { requests, bytes, .. } = self.waiting;
        let (requests, bytes) = (requests + load.requests, bytes + load.bytes);
        let most = if next == Next::TakesEvent { TOGETHER } else { run.segments };
        if requests >= most || bytes >= run.bytes || self.is_over(now) {
            return false;
        }
        if !self.is_corked() {
            self.waiting.until = now.plus(CORK);
        }
        (self.waiting.requests, self.waiting.bytes) = (requests, bytes);
        self.waiting.events |= next == Next::TakesEvent;
        true
    }

    /// Excludes the wait for the lock.
    pub(in crate::engine) fn record_wait(&mut self, time: Duration) {
        self.posts.ended_at = self.posts.ended_at.plus(time);
    }

    pub(in crate::engine) fn record_service(&mut self, now: Instant) {
        self.served_at = now;
    }

    /// True if the posting program must serve its long series.
    pub(in crate::engine) fn is_unserved(&self, now: Instant) -> bool {
        self.posts.in_series && now.since(self.served_at) > UNSERVED
    }

    pub(in crate::engine) fn record_end(&mut self, now: Instant) {
        self.posts.ended_at = now;
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now >= until)
    }

    /// True if the timer has to flush.
    pub(in crate::engine) fn is_late(&mut self, now: Instant) -> bool {
        let is_late = self.is_corked() && now >= self.late_at();
        if is_late {
            self.uncorked.renew(UNCORKED, now);
            self.responses.expected = false;
        }
        is_late
    }

    pub(in crate::engine) fn is_response_late(&self, now: Instant) -> bool {
        self.waiting.acknowledgements && now >= self.late_at()
    }

    /// The program lacks a processor: acknowledgements wait on. Returns the next check's delay.
    pub(in crate::engine) fn excuse(&mut self, now: Instant) -> Duration {
        let was_excused = mem::replace(&mut self.responses.excused, true);
        let after = if was_excused { ACK_TIMER } else { CORK_TIMER };
        self.timer_at = now.plus(after);
        self.waiting.until = self.timer_at;
        after
    }

    fn late_at(&self) -> Instant {
        self.waiting.until.plus(CORK_TIMER - CORK)
    }

    pub(in crate::engine) fn leave(&mut self) {
        if self.is_corked() {
            self.waiting = Waiting::default();
            self.uncorked.miss(IN_TIME);
            self.event_pause.miss(IN_TIME * IN_TIME);
        }
    }

    /// The timer flushed while the program sleeps: another thread takes events, or polling stopped
    /// early. Returns the end of the pause.
    pub(in crate::engine) fn pause_events(&mut self, now: Instant) -> Instant {
        self.event_pause.renew(APART, now);
        self.event_pause.end()
    }

    pub(in crate::engine) const fn record_sent(&mut self, sent: SendPath) {
        self.sent = sent;
    }
}

impl Posts {
    /// `segments`: datagrams of a run.
    fn record(&mut self, now: Instant, polls: u64, segments: usize) {
        if polls != self.polls {
            (self.polls, self.polled_at) = (polls, now);
        }
        let follows = now.since(self.ended_at) <= CLOSELY;
        self.series = if follows { self.series + 1 } else { 0 };
        self.in_series = follows && (self.series >= segments || now.since(self.polled_at) <= POLLS);
        if self.in_series {
            self.polled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TransmitLimits = TransmitLimits { segments: 64, bytes: 65_487 };

    struct Program {
        cork: Cork,
        now: Instant,
        activity: u64,
        next: Next,
    }

    impl Program {
        fn new() -> Self {
            let now = Instant::ZERO.plus(Duration::from_secs(1));
            let mut cork = Cork::new(LIMITS);
            cork.record_sent(SendPath::Call);
            Self { cork, now, activity: 0, next: Next::Polls }
        }

        fn post(&mut self, bytes: usize, after: Duration) -> bool {
            self.now = self.now.plus(after);
            let mut load = Load::default();
            load.add(bytes);
            let waits = self.cork.post(self.now, load, self.activity, self.next);
            if !waits {
                self.cork.leave();
                self.now = self.now.plus(CALL);
            }
            self.cork.record_end(self.now);
            waits
        }

        fn poll(&mut self) {
            self.activity += 1;
            self.cork.leave();
        }
    }

    const CALL: Duration = Duration::from_micros(15);
    const AT_ONCE: Duration = Duration::from_nanos(100);

    #[test]
    fn the_first_leaves_and_those_behind_it_wait_for_a_poll() {
        let mut program = Program::new();
        program.poll();
        for _ in 0..3 {
            assert!(!program.post(64, CLOSELY + AT_ONCE));
            assert!((0..10).all(|_| program.post(64, AT_ONCE)));
            assert!(program.cork.is_corked());
            assert!(program.cork.until().is_some());
            program.poll();
            assert!(!program.cork.is_corked());
            assert_eq!(program.cork.until(), None);
        }
    }

    #[test]
    fn messages_back_and_forth_do_not_wait() {
        let mut program = Program::new();
        for _ in 0..100 {
            program.poll();
            assert!(!program.post(64, CLOSELY + AT_ONCE));
        }
    }

    impl Program {
        fn find(&mut self) -> bool {
            self.activity += 1;
            self.cork.leave();
            self.cork.count_poll();
            self.cork.find(self.now, false)
        }
    }

    #[test]
    fn an_acknowledgement_waits_for_the_response_of_a_program_that_has_responded() {
        let mut program = Program::new();
        assert!(!program.find(), "nobody knows yet whether it answers");
        assert!(!program.post(64, AT_ONCE));
        for _ in 0..100 {
            assert!(program.find());
            assert!(program.cork.is_corked());
            assert!(!program.post(64, AT_ONCE), "an answer leaves at once, and takes it along");
            assert!(!program.cork.is_corked());
        }
        assert!(program.post(64, AT_ONCE));
        assert!(program.find());
        assert!(program.cork.is_over(program.now.plus(CORK)));

        // polls instead of replying
        assert!(!program.find());
        program.post(64, CLOSELY + AT_ONCE);
        assert!(!program.find(), "it answered late");
        program.post(64, CLOSELY);
        assert!(program.find());

        program.cork.record_sent(SendPath::Memory);
        program.post(64, AT_ONCE);
        assert!(!program.find(), "what goes through memory");
        program.cork.record_sent(SendPath::Wakeup);
        program.post(64, AT_ONCE);
        assert!(program.find(), "the peer sleeps, and is woken once for both");
        assert!(!program.post(64, AT_ONCE), "an answer");
        assert!(!program.post(64, AT_ONCE), "requests do not wait: the peer is awake by now");
        let mut program = Program { cork: Cork::new(TransmitLimits::SINGLE), ..program };
        program.cork.record_sent(SendPath::Call);
        for _ in 0..3 {
            assert!(!program.find());
            program.post(64, AT_ONCE);
        }
    }

    #[test]
    fn responses_to_further_events_wait() {
        let mut program = Program::new();
        program.find();
        assert!(!program.post(64, AT_ONCE));
        for _ in 0..3 {
            program.next = Next::TakesEvent;
            assert!(program.find());
            assert!(!program.post(64, AT_ONCE), "the peer works on the first meanwhile");
            assert!((1..TOGETHER).all(|_| program.post(64, AT_ONCE)));
            assert!(!program.post(64, AT_ONCE), "so many leave together");
            assert!((0..3).all(|_| program.post(64, AT_ONCE)));
            program.next = Next::Sleeps;
            assert!(!program.post(64, AT_ONCE), "the last one leaves, and takes all along");
            assert!(!program.cork.is_corked());
            // nothing to post for the last event: polls
            assert!(program.find());
            program.next = Next::TakesEvent;
            assert!(!program.post(64, AT_ONCE));
            assert!(program.post(64, AT_ONCE));
            program.poll();
            assert!(!program.cork.is_corked());
        }
        assert!(program.find());
        program.next = Next::TakesEvent;
        assert!(!program.post(64, AT_ONCE));
        assert!(program.post(64, AT_ONCE));
        assert_eq!(program.cork.set_timer(program.now), Some(ACK_TIMER));
        assert_eq!(program.cork.set_timer(program.now), None, "it is set for the next ones, too");
        assert!(!program.post(64, CORK), "it has waited long enough");
        program.cork.leave();
        program.next = Next::Sleeps;
        let waits: Vec<_> = (0..100).map(|_| program.post(64, AT_ONCE)).collect();
        let at_once = waits.iter().position(|waits| *waits);
        assert_eq!(at_once, Some(LIMITS.segments - 1), "nobody polls after them");

        let now = program.now;
        let mut lasts = || program.cork.pause_events(now).since(now);
        assert_eq!([lasts(), lasts(), lasts()], [APART[0], APART[0] * 2, APART[0] * 4]);
        for _ in 0..IN_TIME * IN_TIME {
            program.cork.waiting.requests = 1;
            program.cork.leave();
        }
        assert_eq!(program.cork.pause_events(now).since(now), APART[0]);
    }

    #[test]
    fn what_acknowledges_a_write_waits_through_memory_too() {
        let mut program = Program::new();
        program.cork.record_sent(SendPath::Memory);
        let finds = |program: &mut Program| program.cork.find(program.now, true);
        assert!(!finds(&mut program), "nobody knows yet whether it answers");
        for late in [AT_ONCE, CLOSELY * 2, CORK_TIMER] {
            program.post(64, late);
            assert!(finds(&mut program));
        }
        program.post(64, CORK_TIMER + AT_ONCE);
        assert!(!finds(&mut program));
        program.post(64, AT_ONCE);
        assert!(!program.cork.find(program.now, false), "what completes a receive request");
        program.post(64, AT_ONCE);
        program.cork.find(program.now, true);
        program.cork.count_poll();
        assert!(!finds(&mut program), "it has polled once more instead");
    }

    #[test]
    fn who_is_kept_from_the_processor_is_excused() {
        let mut program = Program::new();
        program.find();
        program.post(64, AT_ONCE);
        assert!(program.find());
        let cork = &mut program.cork;
        assert!(!cork.is_response_late(program.now));
        for after in [CORK_TIMER, ACK_TIMER, ACK_TIMER] {
            program.now = program.now.plus(CORK_TIMER);
            assert!(cork.is_response_late(program.now));
            assert_eq!(cork.excuse(program.now), after);
            program.now = program.now.plus(after);
            assert!(!cork.is_response_late(program.now) && !cork.is_late(program.now));
        }
        program.post(64, ACK_TIMER);
        assert!(program.find(), "it is expected to answer still");
        program.now = program.now.plus(CORK_TIMER);
        assert!(program.cork.is_late(program.now));
        program.cork.leave();
        assert!(!program.find());
    }

    #[test]
    fn who_lets_an_acknowledgement_wait_for_the_timer_is_left_alone() {
        let mut program = Program::new();
        program.find();
        program.post(64, AT_ONCE);
        assert!(program.find());
        program.now = program.now.plus(CORK_TIMER);
        assert!(program.cork.is_late(program.now));
        program.cork.leave();
        program.post(64, AT_ONCE);
        assert!(!program.find());
        program.post(64, AT_ONCE);
        assert!(!program.find());
        program.post(64, UNCORKED[0]);
        program.find();
        program.post(64, AT_ONCE);
        assert!(program.find());
    }

    #[test]
    fn the_timer_is_seldom_set_for_acknowledgements() {
        let mut program = Program::new();
        program.find();
        program.post(64, AT_ONCE);
        let mut set = Vec::new();
        for _ in 0..1000 {
            assert!(program.find());
            if let Some(after) = program.cork.set_timer(program.now) {
                set.push((program.now, after));
            }
            let end = set.last().map(|&(at, after)| at.plus(after)).unwrap();
            assert!(end >= program.now.plus(CORK_TIMER), "it is there for each");
            program.post(64, AT_ONCE); // and takes `CALL`
        }
        let most = (CALL + AT_ONCE) * 1000 / (ACK_TIMER - CORK_TIMER).as_micros() as u32;
        assert!(set.len() <= most.as_micros() as usize + 1, "{}", set.len());

        assert!(program.post(64, AT_ONCE), "a request");
        assert_eq!(program.cork.set_timer(program.now), Some(CORK_TIMER));
    }

    #[test]
    fn a_full_run_leaves() {
        let mut program = Program::new();
        program.poll();
        let lengths = [(64, LIMITS.segments), (4096, LIMITS.bytes.div_ceil(4096 + HEADERS))];
        for (bytes, requests) in lengths {
            program.post(bytes, CLOSELY + AT_ONCE);
            for _ in 0..3 {
                assert!((1..requests).all(|_| program.post(bytes, AT_ONCE)));
                assert!(!program.post(bytes, AT_ONCE), "the last one of a run");
            }
        }
    }

    #[test]
    fn nothing_waits_longer_than_the_time() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        let mut waited = Duration::ZERO;
        while program.post(64, CLOSELY) {
            waited += CLOSELY;
        }
        assert_eq!(waited, CORK, "counted from the first that waits");
        program.post(64, AT_ONCE);
        let until = program.now.plus(CORK);
        assert!(!program.cork.is_over(program.now));
        assert!(program.cork.is_over(until));
    }

    #[test]
    fn large_requests_leave_with_what_waits() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        assert!(program.post(LARGEST, AT_ONCE));
        assert!(!program.post(LARGEST + 1, AT_ONCE));
        assert!(!program.cork.is_corked());
    }

    #[test]
    fn nothing_waits_for_a_program_that_does_not_poll() {
        let mut program = Program::new();
        program.poll();
        assert!(!program.post(64, Duration::from_secs(1)));
        assert!(program.post(64, AT_ONCE), "it has polled before the last one");
        program.cork.leave();
        program.now = program.now.plus(POLLS);
        assert!(!program.post(64, AT_ONCE));
        assert!(!program.post(64, AT_ONCE));
        program.poll();
        assert!(program.post(64, AT_ONCE));
    }

    #[test]
    fn a_long_series_of_posts_waits_after_one_poll_and_is_served() {
        let mut program = Program::new();
        program.poll();
        program.cork.record_service(program.now);
        program.post(64, CLOSELY + AT_ONCE);
        assert!(!program.cork.is_unserved(program.now));
        let end = program.now.plus(POLLS * 3);
        let mut unserved = 0;
        while program.now < end {
            let waits = (1..LIMITS.segments).all(|_| program.post(64, AT_ONCE));
            assert!(waits && !program.post(64, AT_ONCE), "full runs");
            if program.cork.is_unserved(program.now) {
                unserved += 1;
                program.cork.record_service(program.now);
            }
        }
        assert!((3..=6).contains(&unserved), "{unserved} times in {:?}", POLLS * 3);
        program.now = program.now.plus(UNSERVED);
        program.post(64, CLOSELY + AT_ONCE);
        assert!(!program.cork.is_unserved(program.now), "it has done something else");

        // a program that does not poll is served by others, unless its series is long
        program.post(64, POLLS);
        for number in 1..LIMITS.segments * 2 {
            program.cork.leave();
            let is_long = number >= LIMITS.segments;
            assert_eq!(program.post(64, AT_ONCE), is_long);
            assert_eq!(program.cork.is_unserved(program.now), is_long);
        }
    }

    #[test]
    fn the_time_that_the_lock_takes_does_not_count() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        program.cork.record_wait(CLOSELY);
        assert!(program.post(64, CLOSELY + AT_ONCE));
    }

    #[test]
    fn what_goes_through_memory_or_singly_does_not_wait() {
        let mut program = Program::new();
        program.cork.record_sent(SendPath::Memory);
        program.poll();
        assert!((0..10).all(|_| !program.post(64, AT_ONCE)));
        program.cork.record_sent(SendPath::Call);
        assert!(program.post(64, AT_ONCE));

        let mut program = Program { cork: Cork::new(TransmitLimits::SINGLE), ..program };
        program.cork.record_sent(SendPath::Call);
        assert!(!program.cork.is_possible());
        program.poll();
        assert!((0..10).all(|_| !program.post(64, AT_ONCE)));
    }

    #[test]
    fn a_program_that_lets_the_timer_send_is_left_alone() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        for length in [UNCORKED[0], UNCORKED[0] * 2] {
            assert!(program.post(64, AT_ONCE));
            let due = program.now.plus(CORK_TIMER);
            assert!(!program.cork.is_late(program.now));
            assert!(program.cork.is_late(due));
            program.cork.leave();
            program.now = due;
            let end = program.now.plus(length);
            while program.now.plus(AT_ONCE) < end {
                program.poll();
                assert!(!program.post(64, AT_ONCE));
            }
        }
        // the program is back
        for _ in 0..IN_TIME {
            program.poll();
            assert!(program.post(64, AT_ONCE));
            program.cork.leave();
        }
        assert!(program.post(64, AT_ONCE));
        program.now = program.now.plus(CORK_TIMER);
        assert!(program.cork.is_late(program.now));
        program.cork.leave();
        program.poll();
        assert!(!program.post(64, CLOSELY));
        program.now = program.now.plus(UNCORKED[0]);
        program.poll();
        program.post(64, AT_ONCE);
        assert!(program.post(64, AT_ONCE));
    }
}
