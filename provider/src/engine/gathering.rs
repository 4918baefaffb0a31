//! Requests that wait for those behind them, so that they leave with one call of the system.
//!
//! A call costs as much for one small datagram as for a run of them. A program that posts one small
//! request after the other has them gathered therefore, as TCP does (autocorking): the first one
//! leaves at once, and those that follow it closely wait for
//! - the next look of the program at an empty completion queue, and any other call of it but a post,
//! - a full run,
//! - or, if the program does nothing of that, [`TIME`], after which its next post or poll has it leave. If
//!   there is none, a timer of the system wakes the background thread after [`TIMER`]. A program with which
//!   that happens is left alone for a while.
//!
//! Where messages go back and forth, the acknowledgement of the one waits in the same way, and leaves
//! with the answer: if the program has answered the message before within [`CLOSELY`] of finding it, by a
//! post with nothing in between but receives. The answer itself never waits.
//!
//! Only what goes through sockets is gathered, of programs that poll; acknowledgements of WRITEs wait through
//! memory, too, for programs that look at theirs.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use roce_transport::{adapter::TransmitLimits, time::Instant};

use super::spell::Spell;

/// Time after which what waits leaves with the next call of the program.
const TIME: Duration = Duration::from_micros(20);

/// Time after which it leaves without: long enough that a program that goes on posting is there before.
const TIMER: Duration = Duration::from_micros(60);

/// Time after which acknowledgements leave without. To set a timer costs a virtual machine some
/// microseconds, and while messages go back and forth it is set again that long before it wakes anybody.
const SELDOM: Duration = Duration::from_micros(500);

/// Time from the end of a post to the next one up to which that follows closely: a few times what a call
/// that sends takes.
const CLOSELY: Duration = Duration::from_micros(10);

/// Time within which a program that polls does so.
const POLLS: Duration = Duration::from_millis(1);

/// Time after which a program that posts one request after the other serves with a post: it may have thousands
/// of them to post before it polls again.
const UNSERVED: Duration = Duration::from_micros(500);

/// Bytes of the largest request that is gathered: what a packet has at the largest path MTU. A request of
/// several packets ends with a shorter one, with which a run ends, too.
const LARGEST: usize = 4 * 1024;

/// Bytes of headers, about, for each request.
const HEADERS: usize = 64;

/// Time for which nothing is gathered after the timer had to send it; twice as long each time. The
/// first, and the longest: then such a program loses a hundredth of its time, and one that was only not
/// running for a moment is soon gathered for again.
const ALONE: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(10)];

/// Number of times that the program was there before the timer, after which that is forgotten.
const THERE: u32 = 8;

/// What a call of the program has posted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    requests: usize,
    bytes: usize,
    /// Bytes of the largest request.
    largest: usize,
}

impl Load {
    /// Adds a request.
    pub(super) fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes + HEADERS;
        self.largest = self.largest.max(bytes);
    }

    /// Number of requests.
    pub(super) const fn requests(&self) -> u64 {
        self.requests as u64
    }
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub(super) struct Gathering {
    /// Most that a run of the link can hold; `None`: nothing is gathered.
    run: Option<TransmitLimits>,
    /// What waits.
    requests: usize,
    bytes: usize,
    acknowledgements: bool,
    /// Until when, in nanoseconds of the clock; 0: nothing waits. Changed under the engine's lock, read
    /// without.
    until: Arc<AtomicU64>,
    /// Time for which the timer was set last.
    timer_at: Instant,
    /// End of the last post.
    posted_at: Instant,
    /// Time at which the program found messages that are only to be acknowledged, if it has not called
    /// since.
    found_at: Option<Instant>,
    /// Those were nothing but memory that the peer has written.
    written: bool,
    /// It answered the last ones.
    answers: bool,
    /// It has been kept from the processor since.
    excused: bool,
    /// Number of the program's polls, and when another one was seen, or it went on posting after one.
    polls: u64,
    polled_at: Instant,
    /// Number of posts that have followed each other closely.
    series: usize,
    /// They go on, and the program polls, or they are many.
    in_series: bool,
    /// Last time at which anybody served the adapter.
    served_at: Instant,
    /// What was sent last took a call of the system.
    by_call: bool,
    alone: Spell,
}

impl Gathering {
    /// For a link with these limits, and a background thread.
    pub(super) fn new(limits: TransmitLimits) -> Self {
        let run = (limits.segments > 1).then_some(limits);
        Self { run, ..Self::never() }
    }

    /// Nothing is gathered.
    pub(super) fn never() -> Self {
        Self {
            run: None,
            requests: 0,
            bytes: 0,
            acknowledgements: false,
            until: Arc::default(),
            timer_at: Instant::ZERO,
            posted_at: Instant::ZERO,
            found_at: None,
            written: false,
            answers: false,
            excused: false,
            polls: 0,
            polled_at: Instant::ZERO,
            series: 0,
            in_series: false,
            served_at: Instant::ZERO,
            by_call: false,
            alone: Spell::default(),
        }
    }

    /// True if anything may ever be gathered.
    pub(super) const fn is_possible(&self) -> bool {
        self.run.is_some()
    }

    /// True if what was sent last took a call of the system.
    pub(super) const fn is_by_call(&self) -> bool {
        self.by_call
    }

    /// Time until which something waits, for those who do not have the lock; 0: nothing does.
    pub(super) fn until(&self) -> Arc<AtomicU64> {
        self.until.clone()
    }

    /// True if something waits.
    pub(super) const fn is_waiting(&self) -> bool {
        self.requests > 0 || self.acknowledgements
    }

    /// The program polls, and has not posted since it found something: it does not answer that.
    pub(super) fn note_poll(&mut self) {
        if self.found_at.take().is_some() {
            self.answers = false;
        }
    }

    /// The program finds messages that are only to be acknowledged, or, if `written`, only memory that the
    /// peer has written. Returns true if the acknowledgements wait.
    pub(super) fn find(&mut self, now: Instant, written: bool) -> bool {
        if !self.is_possible() {
            return false;
        }
        (self.found_at, self.written, self.excused) = (Some(now), written, false);
        let may_wait = self.by_call || written;
        self.acknowledgements = may_wait && self.answers && !self.alone.lasts(now);
        if self.acknowledgements {
            self.wait(now);
        }
        self.acknowledgements
    }

    /// The program hears now of what it found.
    pub(super) fn note_found(&mut self, now: Instant) {
        if let Some(at) = &mut self.found_at {
            *at = now;
        }
    }

    /// Time after which the timer is to wake the background thread for what begins to wait; `None`: it
    /// is set already.
    pub(super) fn set_timer(&mut self, now: Instant) -> Option<Duration> {
        let after = match self.acknowledgements {
            true if self.timer_at >= now.plus(TIMER) => return None,
            true => SELDOM,
            false => TIMER,
        };
        self.timer_at = now.plus(after);
        Some(after)
    }

    /// Something waits from now on.
    fn wait(&self, now: Instant) {
        // it is never 0, which says that nothing waits
        self.until.store(now.plus(TIME).as_nanos(), Ordering::SeqCst);
    }

    /// A program, which has polled so often until now, has posted something. Returns true if that waits;
    /// else everything is to leave.
    pub(super) fn post(&mut self, now: Instant, load: Load, polls: u64) -> bool {
        let Some(run) = self.run else { return false };
        if polls != self.polls {
            (self.polls, self.polled_at) = (polls, now);
        }
        let follows = now.since(self.posted_at) <= CLOSELY;
        self.series = if follows { self.series + 1 } else { 0 };
        self.in_series =
            follows && (self.series >= run.segments || now.since(self.polled_at) <= POLLS);
        if self.in_series {
            self.polled_at = now;
        }
        if let Some(found_at) = self.found_at.take() {
            // who is known to answer, or to look at memory, may have been kept from the processor for a moment
            let closely = if self.answers || self.written { TIMER } else { CLOSELY };
            self.answers = self.excused || now.since(found_at) <= closely;
        }
        if self.acknowledgements {
            return false; // which leave with it
        }
        if !(self.in_series && self.by_call) || load.largest > LARGEST || self.alone.lasts(now) {
            return false;
        }
        let (requests, bytes) = (self.requests + load.requests, self.bytes + load.bytes);
        if requests >= run.segments || bytes >= run.bytes || self.is_over(now) {
            return false;
        }
        if !self.is_waiting() {
            self.wait(now);
        }
        (self.requests, self.bytes) = (requests, bytes);
        true
    }

    /// The program has waited so long for the engine's lock, which does not count.
    pub(super) fn note_wait(&mut self, time: Duration) {
        self.posted_at = self.posted_at.plus(time);
    }

    /// Somebody serves the adapter.
    pub(super) fn note_service(&mut self, now: Instant) {
        self.served_at = now;
    }

    /// True if the program, which has just posted, has been posting for so long that it is to serve.
    pub(super) fn is_unserved(&self, now: Instant) -> bool {
        self.in_series && now.since(self.served_at) > UNSERVED
    }

    /// The post has ended, perhaps with a call of the system.
    pub(super) fn note_end(&mut self, now: Instant) {
        self.posted_at = now;
    }

    /// True if what waits has waited long enough.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.is_waiting() && now.as_nanos() >= self.until.load(Ordering::Relaxed)
    }

    /// True if the program lets it wait for so long that the timer has to send it.
    pub(super) fn is_late(&mut self, now: Instant) -> bool {
        let is_late = self.is_waiting() && now >= self.late_at();
        if is_late {
            self.alone.renew(ALONE, now);
            self.answers = false;
        }
        is_late
    }

    /// True if acknowledgements wait for a program that has not answered in time.
    pub(super) fn is_answer_late(&self, now: Instant) -> bool {
        self.acknowledgements && now >= self.late_at()
    }

    /// They wait on, because others keep the program from the processor, perhaps. Returns the time after
    /// which that is to be looked at again.
    pub(super) fn excuse(&mut self, now: Instant) -> Duration {
        let after = if mem::replace(&mut self.excused, true) { SELDOM } else { TIMER };
        self.timer_at = now.plus(after);
        self.until.store(self.timer_at.as_nanos(), Ordering::SeqCst);
        after
    }

    /// Time at which the timer has what waits leave.
    fn late_at(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Relaxed)).plus(TIMER - TIME)
    }

    /// What waits is being sent.
    pub(super) fn leave(&mut self) {
        if self.is_waiting() {
            (self.requests, self.bytes, self.acknowledgements) = (0, 0, false);
            self.until.store(0, Ordering::SeqCst);
            self.alone.miss(THERE);
        }
    }

    /// Runs were sent, by a call of the system or not.
    pub(super) fn note_sent(&mut self, by_call: bool) {
        self.by_call = by_call;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TransmitLimits = TransmitLimits { segments: 64, bytes: 65_487 };

    /// A program that polls and posts by turns, on a virtual clock.
    struct Program {
        gathering: Gathering,
        now: Instant,
        activity: u64,
    }

    impl Program {
        /// Its last message took a call.
        fn new() -> Self {
            let now = Instant::ZERO.plus(Duration::from_secs(1));
            let mut gathering = Gathering::new(LIMITS);
            gathering.note_sent(true);
            Self { gathering, now, activity: 0 }
        }

        /// Posts a request so long after the last one; true if it waits.
        fn post(&mut self, bytes: usize, after: Duration) -> bool {
            self.now = self.now.plus(after);
            let mut load = Load::default();
            load.add(bytes);
            let waits = self.gathering.post(self.now, load, self.activity);
            if !waits {
                self.gathering.leave();
                self.now = self.now.plus(CALL);
            }
            self.gathering.note_end(self.now);
            waits
        }

        fn poll(&mut self) {
            self.activity += 1;
            self.gathering.leave();
        }
    }

    /// Of the system.
    const CALL: Duration = Duration::from_micros(15);
    const AT_ONCE: Duration = Duration::from_nanos(100);

    #[test]
    fn the_first_leaves_and_those_behind_it_wait_for_a_poll() {
        let mut program = Program::new();
        program.poll();
        for _ in 0..3 {
            assert!(!program.post(64, CLOSELY + AT_ONCE));
            assert!((0..10).all(|_| program.post(64, AT_ONCE)));
            assert!(program.gathering.is_waiting());
            assert_ne!(program.gathering.until().load(Ordering::Relaxed), 0);
            program.poll();
            assert!(!program.gathering.is_waiting());
            assert_eq!(program.gathering.until().load(Ordering::Relaxed), 0);
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

    /// A program that finds a message with each poll, and answers it so long after.
    impl Program {
        /// True if the acknowledgement waits.
        fn find(&mut self) -> bool {
            self.activity += 1;
            self.gathering.leave();
            self.gathering.note_poll();
            self.gathering.find(self.now, false)
        }
    }

    #[test]
    fn an_acknowledgement_waits_for_the_answer_of_a_program_that_has_answered() {
        let mut program = Program::new();
        assert!(!program.find(), "nobody knows yet whether it answers");
        assert!(!program.post(64, AT_ONCE));
        for _ in 0..100 {
            assert!(program.find());
            assert!(program.gathering.is_waiting());
            assert!(!program.post(64, AT_ONCE), "an answer leaves at once, and takes it along");
            assert!(!program.gathering.is_waiting());
        }
        // further requests wait as others do
        assert!(program.post(64, AT_ONCE));
        assert!(program.find());
        assert!(program.gathering.is_over(program.now.plus(TIME)));

        // it polls once more instead of answering
        assert!(!program.find());
        program.post(64, CLOSELY + AT_ONCE);
        assert!(!program.find(), "it answered late");
        program.post(64, CLOSELY);
        assert!(program.find());

        program.gathering.note_sent(false);
        program.post(64, AT_ONCE);
        assert!(!program.find(), "what goes through memory");
        let mut program = Program { gathering: Gathering::new(TransmitLimits::SINGLE), ..program };
        program.gathering.note_sent(true);
        for _ in 0..3 {
            assert!(!program.find());
            program.post(64, AT_ONCE);
        }
    }

    /// A program that looks at its memory answers what the background thread finds.
    #[test]
    fn what_acknowledges_a_write_waits_through_memory_too() {
        let mut program = Program::new();
        program.gathering.note_sent(false);
        let finds = |program: &mut Program| program.gathering.find(program.now, true);
        assert!(!finds(&mut program), "nobody knows yet whether it answers");
        for late in [AT_ONCE, CLOSELY * 2, TIMER] {
            program.post(64, late);
            assert!(finds(&mut program));
        }
        program.post(64, TIMER + AT_ONCE);
        assert!(!finds(&mut program));
        program.post(64, AT_ONCE);
        assert!(!program.gathering.find(program.now, false), "what completes a receive request");
        program.post(64, AT_ONCE);
        program.gathering.find(program.now, true);
        program.gathering.note_poll();
        assert!(!finds(&mut program), "it has polled once more instead");
    }

    #[test]
    fn who_is_kept_from_the_processor_is_excused() {
        let mut program = Program::new();
        program.find();
        program.post(64, AT_ONCE);
        assert!(program.find());
        let gathering = &mut program.gathering;
        assert!(!gathering.is_answer_late(program.now));
        for after in [TIMER, SELDOM, SELDOM] {
            program.now = program.now.plus(TIMER);
            assert!(gathering.is_answer_late(program.now));
            assert_eq!(gathering.excuse(program.now), after);
            program.now = program.now.plus(after);
            assert!(!gathering.is_answer_late(program.now) && !gathering.is_late(program.now));
        }
        program.post(64, SELDOM);
        assert!(program.find(), "it is expected to answer still");
        program.now = program.now.plus(TIMER);
        assert!(program.gathering.is_late(program.now));
        program.gathering.leave();
        assert!(!program.find());
    }

    #[test]
    fn who_lets_an_acknowledgement_wait_for_the_timer_is_left_alone() {
        let mut program = Program::new();
        program.find();
        program.post(64, AT_ONCE);
        assert!(program.find());
        program.now = program.now.plus(TIMER);
        assert!(program.gathering.is_late(program.now));
        program.gathering.leave();
        program.post(64, AT_ONCE);
        assert!(!program.find());
        program.post(64, AT_ONCE);
        assert!(!program.find());
        program.post(64, ALONE[0]);
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
            if let Some(after) = program.gathering.set_timer(program.now) {
                set.push((program.now, after));
            }
            let end = set.last().map(|&(at, after)| at.plus(after)).unwrap();
            assert!(end >= program.now.plus(TIMER), "it is there for each");
            program.post(64, AT_ONCE); // and takes `CALL`
        }
        let most = (CALL + AT_ONCE) * 1000 / (SELDOM - TIMER).as_micros() as u32;
        assert!(set.len() <= most.as_micros() as usize + 1, "{}", set.len());

        assert!(program.post(64, AT_ONCE), "a request");
        assert_eq!(program.gathering.set_timer(program.now), Some(TIMER));
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
        assert_eq!(waited, TIME, "counted from the first that waits");
        program.post(64, AT_ONCE);
        let until = program.now.plus(TIME);
        assert!(!program.gathering.is_over(program.now));
        assert!(program.gathering.is_over(until));
    }

    #[test]
    fn large_requests_leave_with_what_waits() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        assert!(program.post(LARGEST, AT_ONCE));
        assert!(!program.post(LARGEST + 1, AT_ONCE));
        assert!(!program.gathering.is_waiting());
    }

    #[test]
    fn nothing_waits_for_a_program_that_does_not_poll() {
        let mut program = Program::new();
        program.poll();
        assert!(!program.post(64, Duration::from_secs(1)));
        assert!(program.post(64, AT_ONCE), "it has polled before the last one");
        program.gathering.leave();
        program.now = program.now.plus(POLLS);
        assert!(!program.post(64, AT_ONCE));
        assert!(!program.post(64, AT_ONCE));
        program.poll();
        assert!(program.post(64, AT_ONCE));
    }

    /// One with thousands of requests outstanding, which has as many to post at a time.
    #[test]
    fn a_long_series_of_posts_waits_after_one_poll_and_is_served() {
        let mut program = Program::new();
        program.poll();
        program.gathering.note_service(program.now);
        program.post(64, CLOSELY + AT_ONCE);
        assert!(!program.gathering.is_unserved(program.now));
        let end = program.now.plus(POLLS * 3);
        let mut unserved = 0;
        while program.now < end {
            let waits = (1..LIMITS.segments).all(|_| program.post(64, AT_ONCE));
            assert!(waits && !program.post(64, AT_ONCE), "full runs");
            if program.gathering.is_unserved(program.now) {
                unserved += 1;
                program.gathering.note_service(program.now);
            }
        }
        assert!((3..=6).contains(&unserved), "{unserved} times in {:?}", POLLS * 3);
        program.now = program.now.plus(UNSERVED);
        program.post(64, CLOSELY + AT_ONCE);
        assert!(!program.gathering.is_unserved(program.now), "it has done something else");

        // who does not poll is served by others, unless it posts that many
        program.post(64, POLLS);
        for number in 1..LIMITS.segments * 2 {
            program.gathering.leave();
            let is_long = number >= LIMITS.segments;
            assert_eq!(program.post(64, AT_ONCE), is_long);
            assert_eq!(program.gathering.is_unserved(program.now), is_long);
        }
    }

    #[test]
    fn the_time_that_the_lock_takes_does_not_count() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        program.gathering.note_wait(CLOSELY);
        assert!(program.post(64, CLOSELY + AT_ONCE));
    }

    #[test]
    fn what_goes_through_memory_or_singly_does_not_wait() {
        let mut program = Program::new();
        program.gathering.note_sent(false);
        program.poll();
        assert!((0..10).all(|_| !program.post(64, AT_ONCE)));
        program.gathering.note_sent(true);
        assert!(program.post(64, AT_ONCE));

        let mut program = Program { gathering: Gathering::new(TransmitLimits::SINGLE), ..program };
        program.gathering.note_sent(true);
        assert!(!program.gathering.is_possible());
        program.poll();
        assert!((0..10).all(|_| !program.post(64, AT_ONCE)));
    }

    #[test]
    fn a_program_that_lets_the_timer_send_is_left_alone() {
        let mut program = Program::new();
        program.poll();
        program.post(64, CLOSELY + AT_ONCE);
        for length in [ALONE[0], ALONE[0] * 2] {
            assert!(program.post(64, AT_ONCE));
            let due = program.now.plus(TIMER);
            assert!(!program.gathering.is_late(program.now));
            assert!(program.gathering.is_late(due));
            program.gathering.leave();
            program.now = due;
            let end = program.now.plus(length);
            while program.now.plus(AT_ONCE) < end {
                program.poll();
                assert!(!program.post(64, AT_ONCE));
            }
        }
        // it is there again
        for _ in 0..THERE {
            program.poll();
            assert!(program.post(64, AT_ONCE));
            program.gathering.leave();
        }
        assert!(program.post(64, AT_ONCE));
        program.now = program.now.plus(TIMER);
        assert!(program.gathering.is_late(program.now));
        program.gathering.leave();
        program.poll();
        assert!(!program.post(64, CLOSELY));
        program.now = program.now.plus(ALONE[0]);
        program.poll();
        program.post(64, AT_ONCE);
        assert!(program.post(64, AT_ONCE));
    }
}
