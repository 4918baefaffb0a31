//! The receiving half of a connection.

use std::collections::VecDeque;

/// The peer exceeded its credits or buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) last: u16,
    /// Newly permitted part of the receive buffer.
    pub(super) room: Option<Room>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// Index in the peer's table.
    pub(super) index: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// The buffer is advertised in halves: a read half is advertised again while the other fills.
#[derive(Debug)]
pub(super) struct Incoming {
    half: u32,
    /// Bytes of each unread message.
    messages: VecDeque<u32>,
    readable: u32,
    /// Offset of the next unread byte.
    at: u32,
    /// Bytes that the peer may still write.
    open: u32,
    /// Bytes read and not yet advertised.
    free: u32,
    /// The half to advertise next, and its index in the peer's table.
    next: u32,
    index: u32,
    entries: u32,
    /// Numbers of the last arrived, read and permitted message.
    arrived: u16,
    read: u16,
    last: u16,
    /// Messages permitted ahead.
    credits: u16,
}

impl Incoming {
    /// The peer has `credits`, the first half of a buffer of `size` bytes, and a table of
    /// `entries`.
    pub(super) fn new(credits: u16, size: u32, entries: u32) -> Self {
        let half = size / 2;
        Self {
            half,
            messages: VecDeque::new(),
            readable: 0,
            at: 0,
            open: half,
            free: half,
            next: half,
            index: 1 % entries,
            entries,
            arrived: 0,
            read: 0,
            last: credits,
            credits,
        }
    }

    /// # Errors
    /// [`Violation`] beyond the credits or the buffer.
    pub(super) fn arrive(&mut self, length: u32) -> Result<(), Violation> {
        if self.arrived == self.last || length > self.open {
            return Err(Violation);
        }
        self.arrived = self.arrived.wrapping_add(1);
        self.open -= length;
        self.readable += length;
        if length == 0 && self.messages.is_empty() {
            self.read = self.read.wrapping_add(1);
        } else {
            self.messages.push_back(length);
        }
        Ok(())
    }

    pub(super) const fn readable(&self) -> u32 {
        self.readable
    }

    /// Offset and length of up to `most` contiguous readable bytes, after `skip`.
    pub(super) fn piece(&self, skip: u32, most: usize) -> (u32, usize) {
        let size = 2 * self.half;
        let at = (self.at + skip) % size;
        let here = self.readable.saturating_sub(skip).min(size - at);
        (at, most.min(here as usize))
    }

    pub(super) fn consume(&mut self, bytes: u32) {
        self.at = (self.at + bytes) % (2 * self.half);
        self.readable -= bytes;
        self.free += bytes;
        let mut left = bytes;
        while let Some(first) = self.messages.front_mut() {
            if *first > left {
                *first -= left;
                break;
            }
            left -= *first;
            self.messages.pop_front();
            self.read = self.read.wrapping_add(1);
        }
    }

    pub(super) fn is_due(&self) -> bool {
        // one update per half of the messages
        let ahead = self.last.wrapping_sub(self.read);
        self.free >= self.half || self.credits - ahead >= self.credits.div_ceil(2)
    }

    pub(super) fn grant(&mut self) -> Grant {
        self.last = self.read.wrapping_add(self.credits);
        let room = (self.free >= self.half).then(|| {
            let room = Room { index: self.index, offset: self.next, length: self.half };
            self.free -= self.half;
            self.open += self.half;
            self.next = self.half - self.next;
            self.index = (self.index + 1) % self.entries;
            room
        });
        Grant { last: self.last, room }
    }
}
