//! PFC pause frames of a raw device to the next port on its wire.

use std::time::Duration;

use roce::transport::time::Instant;

/// No bridge forwards it.
const NEXT_PORT: [u8; 6] = [0x01, 0x80, 0xC2, 0, 0, 0x01];
const MAC_CONTROL: u16 = 0x8808;
const PRIORITY_PAUSE: u16 = 0x0101;
/// Without FCS.
const SHORTEST_FRAME: usize = 60;
/// Shorter than the longest pause at 400 Gb/s, 84 µs.
const EVERY: Duration = Duration::from_micros(50);

/// A quantum is 512 bit times.
pub(super) fn frame(from: [u8; 6], priorities: u8, quanta: u16) -> Vec<u8> {
    let fields = [MAC_CONTROL, PRIORITY_PAUSE, priorities.into()].into_iter().chain([quanta; 8]);
    let mut frame = [NEXT_PORT, from].concat();
    frame.extend(fields.flat_map(u16::to_be_bytes));
    frame.resize(SHORTEST_FRAME, 0);
    frame
}

#[derive(Debug)]
pub(super) struct LongPause {
    pub(super) priorities: u8,
    until: Instant,
    due: Instant,
    /// End of the last pause.
    lapses: Instant,
    mbps: u32,
}

/// This host was too busy to renew a pause.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lapsed;

impl LongPause {
    pub(super) fn new(now: Instant, priorities: u8, time: Duration, mbps: u32) -> Self {
        let mbps = mbps.max(1);
        let mut pause = Self { priorities, until: now.plus(time), due: now, lapses: now, mbps };
        pause.asked(now);
        pause
    }

    fn asked(&mut self, now: Instant) {
        self.due = now.plus(EVERY);
        let nanos = u64::from(u16::MAX) * 512_000 / u64::from(self.mbps);
        self.lapses = now.plus(Duration::from_nanos(nanos));
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.due.min(self.until)
    }

    /// The last frame has 0 quanta, which end the pause.
    pub(super) fn poll_quanta(&mut self, now: Instant) -> Result<Option<u16>, Lapsed> {
        // An empty pause cannot end early.
        if now >= self.lapses && self.lapses < self.until && self.priorities != 0 {
            return Err(Lapsed);
        }
        if now >= self.until {
            return Ok(Some(0));
        }
        let is_due = now >= self.due;
        if is_due {
            self.asked(now);
        }
        Ok(is_due.then_some(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_the_standard_has_it() {
        let frame = frame([2, 0, 0, 0, 0, 1], 0b1001, 0xFFFF);
        let begin = [1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08, 1, 1, 0, 0b1001];
        assert_eq!(frame[..18], begin);
        assert_eq!(frame[18..34], [0xFF; 16]);
        assert_eq!(frame[34..], [0; 26]);
    }

    #[test]
    fn a_long_pause_is_asked_for_until_it_ends() {
        let start = Instant::from_nanos(1_000);
        let after = |micros| start.plus(Duration::from_micros(micros));
        let mut pause = LongPause::new(start, 1, Duration::from_micros(120), 10_000);
        for (micros, quanta) in [(50, 0xFFFF), (100, 0xFFFF), (120, 0)] {
            let due = pause.poll_timeout();
            assert_eq!(due, after(micros));
            assert_eq!(pause.poll_quanta(due), Ok(Some(quanta)));
            let again = (quanta == 0).then_some(0);
            assert_eq!(pause.poll_quanta(due), Ok(again), "once, but for the end");
        }
    }

    /// 65,535 × 51.2 ns
    #[test]
    fn a_pause_that_is_not_kept_up_is_noticed() {
        let start = Instant::from_nanos(1_000);
        let after = |micros| start.plus(Duration::from_micros(micros));
        let mut pause = LongPause::new(start, 1, Duration::from_millis(5), 10_000);
        assert_eq!(pause.poll_quanta(after(3_355)), Ok(Some(0xFFFF)));
        assert_eq!(pause.poll_quanta(after(5_000)), Ok(Some(0)), "it lasts longer than that");
        let mut pause = LongPause::new(start, 1, Duration::from_millis(5), 10_000);
        assert_eq!(pause.poll_quanta(after(3_356)), Err(Lapsed));
        assert_eq!(pause.poll_quanta(after(6_000)), Err(Lapsed));
        let mut none = LongPause::new(start, 0, Duration::from_millis(5), 10_000);
        assert_eq!(none.poll_quanta(after(3_356)), Ok(Some(0xFFFF)));
    }
}
