//! Looking for packets before sleeping, and how long.

use std::time::Duration;

use roce_transport::time::Instant;

use super::spell::Spell;

/// Time that a thread goes on looking after the last packet before it sleeps: to sleep and to be woken
/// takes longer than most packets are apart.
const LINGER: Duration = Duration::from_micros(50);

/// Time for which a thread does not look in vain after a yield to others: it sleeps, and leaves the processor to
/// those who can use it. Twice as long each time that it finds them there still: they may take
/// milliseconds before it has the processor again. The first, and the longest.
const CROWDED: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Number of yields to nobody between two to others, at most, if others want the processor: somebody now and
/// then, for a moment, is whoever shares the machine.
const RARE: u32 = 4;

/// Number of yields to nobody after which nobody else wants the processor any more.
const ALONE: u32 = 16;

/// A yield that takes longer than this was to somebody who has enough to do. The peer's program, which may
/// be on the same processor, takes less to answer.
const SLICE: Duration = Duration::from_micros(500);

/// Whether a thread looks for the next packet or sleeps until it comes.
#[derive(Debug)]
pub(super) struct Patience {
    /// A yield that takes longer has let somebody run who wants the processor.
    switch: Duration,
    /// Others want the processor.
    crowd: Spell,
    /// Number of yields to nobody since the last one to others.
    vain: u32,
}

impl Patience {
    /// `switch`: time of a yield above which others want the processor.
    pub(super) fn new(switch: Duration) -> Self {
        Self { switch, crowd: Spell::default(), vain: 0 }
    }

    /// True if it looks once more, so long after the last packet.
    pub(super) fn lasts(&self, idle: Duration, now: Instant) -> bool {
        idle <= LINGER && !self.crowd.lasts(now)
    }

    /// It has left the processor to others, if there were any, for so long.
    pub(super) fn note_yield(&mut self, took: Duration, now: Instant) {
        if took <= self.switch {
            self.vain = self.vain.saturating_add(1);
            self.crowd.miss(ALONE);
            return;
        }
        if took > SLICE || self.vain < RARE {
            self.crowd.renew(CROWDED, now);
        }
        self.vain = 0;
    }
}

/// What a thread that waits knows of others.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) patience: Patience,
    /// Other threads of the program poll.
    pub(super) polled: Spell,
}

impl Default for Waiter {
    fn default() -> Self {
        Self { patience: Patience::new(SLICE), polled: Spell::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_the_processor_sleeps_at_once() {
        const SWITCH: Duration = Duration::from_micros(5);
        let mut patience = Patience::new(SWITCH);
        let mut now = Instant::ZERO.plus(Duration::from_secs(1));
        assert!(patience.lasts(LINGER, now));
        assert!(!patience.lasts(LINGER + Duration::from_nanos(1), now));
        patience.note_yield(SWITCH, now);
        assert!(patience.lasts(Duration::ZERO, now));
        patience.note_yield(SWITCH * 2, now);
        assert!(!patience.lasts(Duration::ZERO, now));
        patience.note_yield(Duration::ZERO, now.plus(CROWDED[0] / 2));
        assert!(!patience.lasts(Duration::ZERO, now.plus(CROWDED[0] / 2)));
        assert!(patience.lasts(Duration::ZERO, now.plus(CROWDED[0])));
        let mut crowd = |patience: &mut Patience, length: Duration| {
            patience.note_yield(SWITCH * 2, now);
            assert!(!patience.lasts(Duration::ZERO, now.plus(length / 2)));
            now = now.plus(length);
            assert!(patience.lasts(Duration::ZERO, now));
        };
        crowd(&mut patience, CROWDED[0] * 2);
        (0..10).for_each(|_| patience.note_yield(SWITCH * 2, Instant::ZERO));
        crowd(&mut patience, CROWDED[1]);
        (0..ALONE).for_each(|_| patience.note_yield(Duration::ZERO, Instant::ZERO));
        now = now.plus(CROWDED[1]);
        patience.note_yield(SWITCH * 2, now);
        assert!(patience.lasts(Duration::ZERO, now), "once among many, and not for long");
        patience.note_yield(SLICE * 2, now);
        assert!(!patience.lasts(Duration::ZERO, now));
        assert!(patience.lasts(Duration::ZERO, now.plus(CROWDED[0])));
    }
}
