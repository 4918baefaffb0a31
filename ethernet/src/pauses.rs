//! Received pauses, global (IEEE 802.3, annex 31B) or per priority (IEEE 802.1Qbb). None are sent.

use std::{collections::VecDeque, time::Duration};

use roce_transport::time::Instant;

use super::{
    counters::{Handled, OTHER_PROTOCOL, TRUNCATED},
    frame::chunk,
};

const PAUSE: u16 = 0x0001;
const PRIORITY_PAUSE: u16 = 0x0101;
const PRIORITIES: usize = 8;
/// Queued frames per paused priority.
const HELD: usize = 1024;

#[derive(Debug)]
pub(super) struct Pauses {
    /// A quantum is 512 bit times.
    mbps: u64,
    until: [Instant; PRIORITIES],
    held: [VecDeque<Vec<u8>>; PRIORITIES],
}

impl Pauses {
    pub(super) fn new(mbps: u32) -> Self {
        Self {
            mbps: mbps.max(1).into(),
            until: [Instant::ZERO; PRIORITIES],
            held: Default::default(),
        }
    }

    pub(super) fn take(&mut self, now: Instant, message: &[u8]) -> Handled {
        let field = |at: usize| chunk(message, 2 * at).map(u16::from_be_bytes).ok_or(TRUNCATED);
        let mut pause = |priority: usize, quanta: u16| {
            let time = Duration::from_nanos(u64::from(quanta) * 512_000 / self.mbps);
            self.until[priority] = now.plus(time);
        };
        match field(0)? {
            PAUSE => {
                let quanta = field(1)?;
                (0..PRIORITIES).for_each(|priority| pause(priority, quanta));
            }
            PRIORITY_PAUSE => {
                let (named, _) = (field(1)?, field(1 + PRIORITIES)?);
                for priority in (0..PRIORITIES).filter(|priority| named >> priority & 1 == 1) {
                    pause(priority, field(2 + priority)?);
                }
            }
            _ => return Err(OTHER_PROTOCOL),
        }
        Ok(())
    }

    /// True if paused, or behind queued frames.
    pub(super) fn holds(&self, now: Instant, priority: u8) -> bool {
        let priority = usize::from(priority) % PRIORITIES;
        now < self.until[priority] || !self.held[priority].is_empty()
    }

    /// `false`: full.
    pub(super) fn hold(
        &mut self,
        priority: u8,
        frames: impl ExactSizeIterator<Item = Vec<u8>>,
    ) -> bool {
        let held = &mut self.held[usize::from(priority) % PRIORITIES];
        let has_room = held.len() + frames.len() <= HELD;
        if has_room {
            held.extend(frames);
        }
        has_room
    }

    pub(super) fn released(&self, now: Instant) -> Option<&[u8]> {
        self.next(now).and_then(|priority| self.held[priority].front()).map(Vec::as_slice)
    }

    pub(super) fn pop_released(&mut self, now: Instant) {
        if let Some(priority) = self.next(now) {
            self.held[priority].pop_front();
        }
    }

    fn next(&self, now: Instant) -> Option<usize> {
        let mut waiting = (0..PRIORITIES).rev().filter(|&at| !self.held[at].is_empty());
        waiting.find(|&priority| self.until[priority] <= now)
    }

    pub(super) fn has_held(&self) -> bool {
        self.held.iter().any(|held| !held.is_empty())
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.until.iter().zip(&self.held).filter(|(_, held)| !held.is_empty());
        waiting.map(|(until, _)| *until).min()
    }
}
