//! Congestion window of a path and its receive buffer.
//!
//! Read first: RFC 5681 (slow start, congestion avoidance), RFC 9438 (CUBIC). Bytes include
//! receive-buffer overhead. Loss costs more than in TCP: go-back-N.

use core::time::Duration;

use super::LARGEST;
use crate::time::Instant;

/// Tenths left after a loss.
const AFTER_LOSS: u64 = 7;
/// Tenths left after a CNP.
const AFTER_NOTIFICATION: u64 = 8;
/// Divisor of growth near a CNP's size.
const GROWTH_DIVISOR: u64 = 8;
/// Time after a CNP to regain the size (K in RFC 9438).
const K: Duration = Duration::from_millis(500);
/// Multiple of `K` after which a CNP expires.
const EXPIRY: u32 = 4;

/// Growth near a CNP's size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Near {
    /// By packets, so windows on one path converge.
    Packets,
    /// Cubic in time: the receive buffer fills about once a second, not every few round trips.
    Time,
}

#[derive(Clone, Copy, Debug)]
struct Notified {
    size: u64,
    at: Instant,
}

impl Notified {
    /// Allowed size, until the CNP expires.
    fn allowed(self, now: Instant) -> Option<u64> {
        /// Steps per `K`.
        const ONE: i64 = 256;
        let since = now.since(self.at);
        if since > K * EXPIRY {
            return None;
        }
        let steps = since.as_nanos() as i64 * ONE / K.as_nanos() as i64 - ONE;
        let taken_away = (self.size - self.size * AFTER_NOTIFICATION / 10) as i64;
        Some(self.size.saturating_add_signed(taken_away * steps.pow(3) / ONE.pow(3)))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    limit: u64,
    least: u64,
    most: u64,
    /// Slow start up to here.
    ssthresh: u64,
    /// Set by CNPs only: loss may be independent of size.
    notified: Option<Notified>,
    near: Near,
    /// Growth below one byte.
    rest: u64,
    /// Data has waited since less than half was used.
    cwnd_limited: bool,
}

impl Window {
    pub(crate) fn new(initial: u64, least: u64, most: u64, near: Near) -> Self {
        let most = most.max(least);
        Self {
            limit: initial.clamp(least, most),
            least,
            most,
            ssthresh: u64::MAX,
            notified: None,
            near,
            rest: 0,
            cwnd_limited: false,
        }
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Only full windows grow.
    pub(crate) const fn record_cwnd_limited(&mut self) {
        self.cwnd_limited = true;
    }

    /// Acknowledges `bytes` of `in_flight`.
    pub(crate) fn on_acknowledged(&mut self, bytes: u64, in_flight: u64, now: Instant) {
        if !self.cwnd_limited {
            return;
        }
        if in_flight < self.limit / 2 {
            self.cwnd_limited = false;
            return;
        }
        let near = self.notified.filter(|its| self.limit >= its.size / 8 * 7);
        let allowed = match self.near {
            Near::Packets => None,
            Near::Time => near.and_then(|its| its.allowed(now)),
        };
        let grown = if self.limit < self.ssthresh {
            bytes
        } else if let Some(allowed) = allowed {
            bytes.min(allowed.saturating_sub(self.limit))
        } else {
            // one largest packet per round trip
            let careful = if near.is_some() { GROWTH_DIVISOR } else { 1 };
            self.rest += bytes * LARGEST / careful;
            let grown = self.rest / self.limit;
            self.rest %= self.limit;
            grown
        };
        self.limit = (self.limit + grown).min(self.most);
    }

    pub(crate) fn on_loss(&mut self, in_flight: u64) {
        self.shrink(self.limit.min(in_flight) * AFTER_LOSS / 10);
    }

    /// Everything in flight is lost.
    pub(crate) fn on_timeout(&mut self) {
        self.shrink(self.limit / 2);
        self.limit = self.least;
    }

    pub(crate) fn on_notification(&mut self, now: Instant) {
        self.notified = Some(Notified { size: self.limit, at: now });
        self.shrink(self.limit * AFTER_NOTIFICATION / 10);
    }

    fn shrink(&mut self, to: u64) {
        self.limit = to.clamp(self.least, self.most);
        self.ssthresh = self.limit;
        self.rest = 0;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const START: u64 = 20 * LARGEST;
    const MOST: u64 = 100 * LARGEST;

    /// A round trip with a full window.
    fn round_at(window: &mut Window, now: Instant) {
        let in_flight = window.limit();
        window.record_cwnd_limited();
        for _ in 0..4 {
            window.on_acknowledged(in_flight / 4, in_flight, now);
        }
    }

    fn round(window: &mut Window) {
        round_at(window, Instant::ZERO);
    }

    #[test]
    fn it_doubles_until_something_is_lost_and_then_grows_by_a_packet() {
        let mut window = Window::new(START, LARGEST, MOST, Near::Packets);
        round(&mut window);
        assert_eq!(window.limit(), 2 * START);
        window.on_loss(2 * START);
        assert_eq!(window.limit(), 2 * START * 7 / 10);
        let before = window.limit();
        round(&mut window);
        assert!((before + LARGEST * 3 / 4..=before + LARGEST).contains(&window.limit()));
    }

    #[test]
    fn it_grows_carefully_near_the_size_that_was_too_large() {
        let mut window = Window::new(START, LARGEST, MOST, Near::Packets);
        window.on_notification(Instant::ZERO);
        let rounds = (0..).take_while(|_| {
            round(&mut window);
            window.limit() < START
        });
        // 16 to 17.5 packets singly, then an eighth each
        let rounds = rounds.count();
        assert!((15..40).contains(&rounds), "{rounds}");
    }

    #[test]
    fn it_takes_its_time_near_the_size_that_was_too_large() {
        let mut window = Window::new(START, LARGEST, MOST, Near::Time);
        window.on_notification(Instant::ZERO);
        assert_eq!(window.limit(), START * 8 / 10);
        let mut sizes = Vec::new();
        for n in 1..=500 {
            round_at(&mut window, Instant::ZERO.plus(K * n / 100));
            if n % 100 == 0 {
                sizes.push(window.limit() * 100 / START);
            }
        }
        // regained, 1.2 times, 2.6 times; then a packet per round trip
        assert!(matches!(sizes[..], [98..=100, 118..=120, 250..=260, 499..=500, 500]), "{sizes:?}");
    }

    #[test]
    fn it_at_most_doubles_with_a_round_trip_however_long_ago_it_was_notified() {
        let mut window = Window::new(START, LARGEST, MOST, Near::Time);
        window.on_notification(Instant::ZERO);
        let before = window.limit();
        for _ in 0..4 {
            round(&mut window);
        }
        assert!(window.limit() < START, "{}", window.limit());
        round_at(&mut window, Instant::ZERO.plus(K * 3));
        assert!(window.limit() <= 2 * START && window.limit() > before);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut window = Window::new(START, LARGEST, MOST, Near::Packets);
        for _ in 0..100 {
            window.on_acknowledged(LARGEST, START, Instant::ZERO);
        }
        assert_eq!(window.limit(), START);
        window.record_cwnd_limited();
        window.on_acknowledged(LARGEST, LARGEST, Instant::ZERO);
        window.on_acknowledged(LARGEST, START, Instant::ZERO);
        assert_eq!(window.limit(), START, "that it was used up is long ago");
    }

    #[test]
    fn it_stays_within_one_packet_and_the_most() {
        let mut window = Window::new(1, LARGEST, MOST, Near::Packets);
        assert_eq!(window.limit(), LARGEST);
        for _ in 0..1000 {
            round(&mut window);
        }
        assert_eq!(window.limit(), MOST);
        for _ in 0..100 {
            window.on_loss(0);
            window.on_timeout();
            window.on_notification(Instant::ZERO);
        }
        assert_eq!(window.limit(), LARGEST);
    }
}
