//! A window in bytes that adapts to what the way to a receiver, and the receiver itself, can hold.
//!
//! Read first: RFC 5681 (slow start, congestion avoidance). It differs in what it counts (packets
//! with their overhead in a receive buffer) and in how much a loss costs: the receiver goes back to
//! what was lost, so that a loss is dearer than in TCP, and a window that a notification showed to be
//! too large grows slowly towards the size that was.

use super::LARGEST;

/// Part of a window that is left after a loss, in tenths.
const AFTER_LOSS: u64 = 7;
/// Part of a window that is left after a notification, in tenths.
const AFTER_NOTIFICATION: u64 = 8;
/// Growth near the size at which a notification came, as a part of ordinary growth: one in so many.
const CAREFULLY: u64 = 8;

/// See the [module's documentation](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    limit: u64,
    least: u64,
    most: u64,
    /// Up to here it doubles with each round trip.
    threshold: u64,
    /// Size at which the last notification came. A loss alone says nothing of the size: a network
    /// may lose packets whatever is under way.
    ceiling: u64,
    /// Growth that is too little for a byte yet.
    rest: u64,
    /// Something has waited for room since most of the window was last empty.
    filled: bool,
}

impl Window {
    pub(crate) fn new(initial: u64, least: u64, most: u64) -> Self {
        let most = most.max(least);
        Self {
            limit: initial.clamp(least, most),
            least,
            most,
            threshold: u64::MAX,
            ceiling: u64::MAX,
            rest: 0,
            filled: false,
        }
    }

    /// Bytes that may be under way.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Something waits for room. Only a window that is used up grows.
    pub(crate) const fn note_filled(&mut self) {
        self.filled = true;
    }

    /// Of `taken` bytes that were under way, so many have been acknowledged.
    pub(crate) fn on_acknowledged(&mut self, bytes: u64, taken: u64) {
        if !self.filled {
            return;
        }
        if taken < self.limit / 2 {
            self.filled = false;
            return;
        }
        let grown = if self.limit < self.threshold {
            bytes
        } else {
            // the largest packet with each round trip
            let careful = if self.limit >= self.ceiling / 8 * 7 { CAREFULLY } else { 1 };
            self.rest += bytes * LARGEST / careful;
            let grown = self.rest / self.limit;
            self.rest %= self.limit;
            grown
        };
        self.limit = (self.limit + grown).min(self.most);
    }

    /// Something was lost while so many bytes were under way.
    pub(crate) fn on_loss(&mut self, taken: u64) {
        self.shrink(self.limit.min(taken) * AFTER_LOSS / 10);
    }

    /// Nothing has been acknowledged for so long that all that was under way counts as lost.
    pub(crate) fn on_timeout(&mut self) {
        self.shrink(self.limit / 2);
        self.limit = self.least;
    }

    /// The receiver, or a switch on the way, is about to lose something.
    pub(crate) fn on_notification(&mut self) {
        self.ceiling = self.limit;
        self.shrink(self.limit * AFTER_NOTIFICATION / 10);
    }

    fn shrink(&mut self, to: u64) {
        self.limit = to.clamp(self.least, self.most);
        self.threshold = self.limit;
        self.rest = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 20 * LARGEST;
    const MOST: u64 = 100 * LARGEST;

    /// A round trip in which all of the window was used.
    fn round(window: &mut Window) {
        let taken = window.limit();
        window.note_filled();
        for _ in 0..4 {
            window.on_acknowledged(taken / 4, taken);
        }
    }

    #[test]
    fn it_doubles_until_something_is_lost_and_then_grows_by_a_packet() {
        let mut window = Window::new(START, LARGEST, MOST);
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
        let mut window = Window::new(START, LARGEST, MOST);
        window.on_notification();
        let rounds = (0..).take_while(|_| {
            round(&mut window);
            window.limit() < START
        });
        // 16 to 17.5 packets one by one, and the rest eight times as slowly
        let rounds = rounds.count();
        assert!((15..40).contains(&rounds), "{rounds}");
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut window = Window::new(START, LARGEST, MOST);
        for _ in 0..100 {
            window.on_acknowledged(LARGEST, START);
        }
        assert_eq!(window.limit(), START);
        window.note_filled();
        window.on_acknowledged(LARGEST, LARGEST);
        window.on_acknowledged(LARGEST, START);
        assert_eq!(window.limit(), START, "that it was used up is long ago");
    }

    #[test]
    fn it_stays_within_one_packet_and_the_most() {
        let mut window = Window::new(1, LARGEST, MOST);
        assert_eq!(window.limit(), LARGEST);
        for _ in 0..1000 {
            round(&mut window);
        }
        assert_eq!(window.limit(), MOST);
        for _ in 0..100 {
            window.on_loss(0);
            window.on_timeout();
            window.on_notification();
        }
        assert_eq!(window.limit(), LARGEST);
    }
}
