//! A requester's retries (9.7.6.1.3, 9.9.2.4.1).

use core::time::Duration;

use super::decision::Recovery;
use crate::{
    psn::Psn,
    time::{Instant, ack_timeout},
};

/// RNR retry count 7 is unlimited.
const RNR_WITHOUT_LIMIT: u8 = 7;

/// Backoff limit in acknowledge timeouts: a busy peer needs time.
const LONGEST: u32 = 4;

/// The limit from 0.5 s on: the error should come within twice the configured time.
const LONGEST_OF_LONG: u32 = 2;
const LONG: u8 = 17;

/// Handling of acknowledge timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AckTimer {
    /// Shortest timeout code; default 8, 1 ms: no process responds reliably sooner.
    pub least: u8,
    /// Expiry in percent of the timeout; default 100.
    pub percent: u32,
    /// Exponential backoff; default true.
    pub backs_off: bool,
}

impl AckTimer {
    /// The default.
    pub const USUAL: Self = Self { least: 8, percent: 100, backs_off: true };

    /// Timeout and its largest multiple.
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

impl Default for AckTimer {
    fn default() -> Self {
        Self::USUAL
    }
}

/// Acknowledge timeouts for which useless responses, as behind a gap, put the timer off.
const PATIENCE: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Retry {
    timeout: Option<Duration>,
    longest: u32,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    /// Expiries since progress.
    fired: u32,
    deadline: Option<Instant>,
    paused_until: Option<Instant>,
    /// Last go-back: until acknowledged or timed out, further signs of this loss come from packets
    /// in flight.
    resent_from: Option<Psn>,
    responding_since: Option<Instant>,
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

    pub(crate) fn on_sent(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.put_off(now);
        }
    }

    /// `outstanding`: more responses are due.
    pub(crate) fn on_progress(&mut self, now: Instant, outstanding: bool) {
        self.retries_left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.fired = 0;
        self.resent_from = None;
        self.responding_since = None;
        // nothing is sent in a pause; the next packet restarts the timer
        let waits = outstanding && !self.is_paused();
        self.deadline = self.timeout.filter(|_| waits).map(|timeout| now.plus(timeout));
    }

    pub(crate) fn on_loss(&mut self, psn: Psn, now: Instant) -> Recovery {
        if self.resent_from == Some(psn) || self.is_paused() {
            return Recovery::UnderWay;
        }
        let recovery = self.spend();
        if recovery == Recovery::Retransmit {
            self.record_resent(psn, now);
        }
        recovery
    }

    pub(crate) fn record_resent(&mut self, psn: Psn, now: Instant) {
        self.resent_from = Some(psn);
        self.put_off(now);
    }

    pub(crate) fn is_resent(&self, psn: Psn) -> bool {
        self.resent_from == Some(psn)
    }

    /// Useless data puts the timer off: the repeated response comes behind it.
    pub(crate) fn on_sign_of_life(&mut self, now: Instant) {
        let (Some(timeout), Some(deadline)) = (self.timeout, self.deadline) else { return };
        let since = *self.responding_since.get_or_insert(now);
        if now.since(since) < timeout * PATIENCE {
            self.deadline = Some(deadline.max(now.plus(timeout)));
        }
    }

    pub(crate) fn put_off(&mut self, now: Instant) {
        self.deadline = self.timeout.map(|timeout| now.plus(timeout));
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) -> Recovery {
        self.resent_from = None;
        self.fired += 1;
        let longest = self.longest;
        let times = 1_u32.checked_shl(self.fired).map_or(longest, |times| times.min(longest));
        self.deadline = self.timeout.map(|timeout| now.plus(timeout * times));
        self.spend()
    }

    /// After the pause, a NAK for `psn` is late: some peers send one per packet in flight.
    pub(crate) fn on_not_ready(&mut self, psn: Psn, now: Instant, pause: Duration) -> Recovery {
        if self.is_paused() {
            return Recovery::UnderWay;
        }
        if self.rnr_retry != RNR_WITHOUT_LIMIT {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return Recovery::GiveUp { tries: self.rnr_retry + 1 },
            }
        }
        self.paused_until = Some(now.plus(pause));
        self.deadline = None;
        self.resent_from = Some(psn);
        Recovery::RetransmitAfter(pause)
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.deadline.is_some()
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Returns true if an expired pause ended.
    pub(crate) fn end_pause(&mut self, now: Instant) -> bool {
        let was_paused = self.is_paused();
        self.paused_until = self.paused_until.filter(|&until| until > now);
        was_paused && !self.is_paused()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.paused_until.or(self.deadline)
    }

    fn spend(&mut self) -> Recovery {
        match self.retries_left.checked_sub(1) {
            Some(left) => {
                self.retries_left = left;
                Recovery::Retransmit
            }
            None => Recovery::GiveUp { tries: self.retry_cnt + 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_millis(1);

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
            assert_eq!(retry.on_timeout(at(0)), Recovery::Retransmit);
        }
        assert_eq!(retry.on_timeout(at(0)), Recovery::GiveUp { tries: 8 });
        retry.on_progress(at(0), true);
        assert_eq!(retry.on_timeout(at(0)), Recovery::Retransmit);
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
        assert_eq!(retry.on_loss(Psn::new(5), at(0)), Recovery::Retransmit);
        assert_eq!(retry.on_loss(Psn::new(5), at(0)), Recovery::UnderWay);
        assert_eq!(retry.on_loss(Psn::new(6), at(0)), Recovery::GiveUp { tries: 2 });
    }

    #[test]
    fn not_ready_pauses_and_stops_the_acknowledge_timer() {
        let mut retry = retrying(Some(T), 0, 1);
        retry.on_sent(at(0));
        assert_eq!(retry.on_not_ready(Psn::new(1), at(0), T * 5), Recovery::RetransmitAfter(T * 5));
        assert_eq!(retry.next_deadline(), Some(at(5)));
        assert!(!retry.is_due(at(4)));
        assert_eq!(retry.on_not_ready(Psn::new(1), at(1), T), Recovery::UnderWay);
        assert_eq!(retry.on_loss(Psn::new(1), at(1)), Recovery::UnderWay);
        retry.end_pause(at(4));
        assert!(retry.is_paused());
        retry.end_pause(at(5));
        assert!(!retry.is_paused());
        assert_eq!(retry.on_loss(Psn::new(1), at(5)), Recovery::UnderWay);
        assert_eq!(retry.on_not_ready(Psn::new(1), at(5), T), Recovery::GiveUp { tries: 2 });
    }

    #[test]
    fn seven_not_ready_retries_are_without_limit() {
        let mut retry = retrying(None, 0, 7);
        for _ in 0..100 {
            assert_eq!(retry.on_not_ready(Psn::new(1), at(0), T), Recovery::RetransmitAfter(T));
            retry.end_pause(at(1));
        }
    }
}
