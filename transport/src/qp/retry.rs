//! Retries of a requester: timers and counters (9.7.6.1.3, 9.9.2.4.1).

use core::time::Duration;

use super::note::Recovery;
use crate::{
    psn::Psn,
    time::{Instant, ack_timeout},
};

/// An RNR retry count of 7 means "without limit"; a retry count of 7 means 7.
const RNR_WITHOUT_LIMIT: u8 = 7;

/// Limit of the exponential backoff, in acknowledge timeouts. The timer doubles each time that it
/// fires: a peer whose processor is busy answers late, and needs time, not more repeats.
const LONGEST: u32 = 4;

/// The limit from timeouts of half a second on. A peer that is silent for so long is seldom only
/// busy, and the program gets the error within twice the time of its settings.
const LONGEST_OF_LONG: u32 = 2;
const LONG: u8 = 17;

/// How an adapter keeps acknowledge timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AckTimer {
    /// Code of the shortest timeout that is kept. 8 by default, 1 ms: no process answers sooner for
    /// sure.
    pub least: u8,
    /// Time after which the timer fires, in percent of the timeout. 100 by default.
    pub percent: u32,
    /// The timer backs off exponentially; true by default.
    pub backs_off: bool,
}

impl AckTimer {
    /// The default.
    pub const USUAL: Self = Self { least: 8, percent: 100, backs_off: true };
}

impl Default for AckTimer {
    fn default() -> Self {
        Self::USUAL
    }
}

impl AckTimer {
    /// The first time of the timer for a code, if it runs at all, and the greatest multiple of it.
    fn of(&self, code: u8) -> (Option<Duration>, u32) {
        let longest = match self.backs_off {
            false => 1,
            true if code >= LONG => LONGEST_OF_LONG,
            true => LONGEST,
        };
        let code = if code == 0 { 0 } else { code.max(self.least) };
        (ack_timeout(code).map(|timeout| timeout * self.percent / 100), longest)
    }
}

/// How many times the acknowledge timeout a peer may put the timer off with answers that do not
/// help: the rest of a long READ's answer behind a gap, say.
const PATIENCE: u32 = 64;

/// Counters and timers of a requester.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    timeout: Option<Duration>,
    /// The greatest multiple of it that the timer takes.
    longest: u32,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    /// Number of times that the timer has fired since something was acknowledged.
    fired: u32,
    deadline: Option<Instant>,
    /// The peer was not ready and is left alone until then.
    paused_until: Option<Instant>,
    /// The oldest PSN from which was sent again because a NAK or a gap asked for it, or will be
    /// when the pause is over. Until that PSN is acknowledged, or the timer fires, further signs of
    /// the same loss are no news: everything that was under way when it happened shows it.
    resent_from: Option<Psn>,
    /// Since when the peer has been answering what does not help.
    answering_since: Option<Instant>,
}

/// Verdict of a retry counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Again,
    /// Recovery from this very loss is already under way.
    UnderWay,
    /// The counter is used up, after this many transmissions.
    GiveUp {
        tries: u8,
    },
}

impl From<Verdict> for Recovery {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Again => Self::Again,
            Verdict::UnderWay => Self::UnderWay,
            Verdict::GiveUp { tries } => Self::GiveUp { tries },
        }
    }
}

impl Retry {
    pub(crate) fn new(timer: AckTimer, timeout: u8, retry_cnt: u8, rnr_retry: u8) -> Self {
        let (timeout, longest) = timer.of(timeout);
        Self {
            timeout,
            longest,
            retry_cnt,
            rnr_retry,
            retries_left: retry_cnt,
            rnr_left: rnr_retry,
            ..Self::default()
        }
    }

    /// A packet left that wants an answer.
    pub(crate) fn on_sent(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.put_off(now);
        }
    }

    /// The peer acknowledged something new; `outstanding` tells whether it still owes an answer.
    pub(crate) fn on_progress(&mut self, now: Instant, outstanding: bool) {
        self.retries_left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.fired = 0;
        self.resent_from = None;
        self.answering_since = None;
        // during a pause nothing is sent; the timer starts again with what is sent after it
        let waits = outstanding && !self.is_paused();
        self.deadline = self.timeout.filter(|_| waits).map(|timeout| now.plus(timeout));
    }

    /// A NAK or a gap shows that `psn` was lost.
    pub(crate) fn on_loss(&mut self, psn: Psn, now: Instant) -> Verdict {
        if self.resent_from == Some(psn) || self.is_paused() {
            return Verdict::UnderWay;
        }
        let verdict = self.spend();
        if verdict == Verdict::Again {
            self.record_resent(psn, now);
        }
        verdict
    }

    /// All from `psn` on is being sent again.
    pub(crate) fn record_resent(&mut self, psn: Psn, now: Instant) {
        self.resent_from = Some(psn);
        self.put_off(now);
    }

    /// True if `psn` was sent again because it was lost, and is the oldest since.
    pub(crate) fn is_resent(&self, psn: Psn) -> bool {
        self.resent_from == Some(psn)
    }

    /// Data arrived that is no longer wanted, or comes behind a gap. The peer is alive, and the
    /// repeated response comes behind what it is still sending.
    pub(crate) fn on_sign_of_life(&mut self, now: Instant) {
        let (Some(timeout), Some(deadline)) = (self.timeout, self.deadline) else { return };
        let since = *self.answering_since.get_or_insert(now);
        if now.since(since) < timeout * PATIENCE {
            self.deadline = Some(deadline.max(now.plus(timeout)));
        }
    }

    /// Restarts the acknowledge timer.
    pub(crate) fn put_off(&mut self, now: Instant) {
        self.deadline = self.timeout.map(|timeout| now.plus(timeout));
    }

    /// The acknowledge timer fired.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> Verdict {
        self.resent_from = None;
        self.fired += 1;
        let longest = self.longest;
        let times = 1_u32.checked_shl(self.fired).map_or(longest, |times| times.min(longest));
        self.deadline = self.timeout.map(|timeout| now.plus(timeout * times));
        self.spend()
    }

    /// The peer is not ready for `psn` and asks to be left alone for `pause`. A NAK for the same
    /// PSN that comes after the pause is late: some peers send one for what was under way behind
    /// `psn`.
    pub(crate) fn on_not_ready(&mut self, psn: Psn, now: Instant, pause: Duration) -> Verdict {
        if self.is_paused() {
            return Verdict::UnderWay;
        }
        if self.rnr_retry != RNR_WITHOUT_LIMIT {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return Verdict::GiveUp { tries: self.rnr_retry + 1 },
            }
        }
        self.paused_until = Some(now.plus(pause));
        self.deadline = None;
        self.resent_from = Some(psn);
        Verdict::Again
    }

    /// True if the acknowledge timer runs.
    pub(crate) const fn is_running(&self) -> bool {
        self.deadline.is_some()
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Ends the pause if it is over; the requester then sends again by itself.
    /// Returns whether it ended.
    pub(crate) fn end_pause(&mut self, now: Instant) -> bool {
        let was_paused = self.is_paused();
        self.paused_until = self.paused_until.filter(|&until| until > now);
        was_paused && !self.is_paused()
    }

    /// True if the acknowledge timer has fired.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.paused_until.or(self.deadline)
    }

    fn spend(&mut self) -> Verdict {
        match self.retries_left.checked_sub(1) {
            Some(left) => {
                self.retries_left = left;
                Verdict::Again
            }
            None => Verdict::GiveUp { tries: self.retry_cnt + 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_millis(1);

    /// One whose acknowledge timeout is `T`, or without.
    fn retrying(timeout: Option<Duration>, retry_cnt: u8, rnr_retry: u8) -> Retry {
        Retry { timeout, ..Retry::new(AckTimer::default(), 1, retry_cnt, rnr_retry) }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn seven_retries_are_seven_and_progress_restores_them() {
        let mut retry = retrying(Some(T), 7, 7);
        for _ in 0..7 {
            assert_eq!(retry.on_timeout(at(0)), Verdict::Again);
        }
        assert_eq!(retry.on_timeout(at(0)), Verdict::GiveUp { tries: 8 });
        retry.on_progress(at(0), true);
        assert_eq!(retry.on_timeout(at(0)), Verdict::Again);
    }

    #[test]
    fn the_timer_doubles_up_to_four_times_and_progress_starts_it_anew() {
        let mut retry = retrying(Some(T), 7, 7);
        retry.on_sent(at(0));
        let mut now = 0;
        for waited in [1, 2, 4, 4, 4] {
            assert_eq!(retry.next_deadline(), Some(at(now + waited)));
            now += waited;
            retry.on_timeout(at(now));
        }
        retry.on_progress(at(now), true);
        assert_eq!(retry.next_deadline(), Some(at(now + 1)));
    }

    #[test]
    fn signs_of_one_loss_count_once() {
        let mut retry = retrying(Some(T), 1, 0);
        assert_eq!(retry.on_loss(Psn::new(5), at(0)), Verdict::Again);
        assert_eq!(retry.on_loss(Psn::new(5), at(0)), Verdict::UnderWay);
        assert_eq!(retry.on_loss(Psn::new(6), at(0)), Verdict::GiveUp { tries: 2 });
    }

    #[test]
    fn not_ready_pauses_and_stops_the_acknowledge_timer() {
        let mut retry = retrying(Some(T), 0, 1);
        retry.on_sent(at(0));
        assert_eq!(retry.on_not_ready(Psn::new(1), at(0), T * 5), Verdict::Again);
        assert_eq!(retry.next_deadline(), Some(at(5)));
        assert!(!retry.is_due(at(4)));
        assert_eq!(retry.on_not_ready(Psn::new(1), at(1), T), Verdict::UnderWay);
        assert_eq!(retry.on_loss(Psn::new(1), at(1)), Verdict::UnderWay);
        retry.end_pause(at(4));
        assert!(retry.is_paused());
        retry.end_pause(at(5));
        assert!(!retry.is_paused());
        assert_eq!(retry.on_loss(Psn::new(1), at(5)), Verdict::UnderWay);
        assert_eq!(retry.on_not_ready(Psn::new(1), at(5), T), Verdict::GiveUp { tries: 2 });
    }

    #[test]
    fn seven_not_ready_retries_are_without_limit() {
        let mut retry = retrying(None, 0, 7);
        for _ in 0..100 {
            assert_eq!(retry.on_not_ready(Psn::new(1), at(0), T), Verdict::Again);
            retry.end_pause(at(1));
        }
    }
}
