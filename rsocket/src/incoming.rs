//! The receiving half of a connection: arrived data, and the room advertised to the peer.

use std::collections::VecDeque;

/// The peer has sent what it was not allowed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation;

/// What the peer is to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    /// The last message that it may send.
    pub(super) last: u16,
    /// A part of the receive buffer that it may fill.
    pub(super) room: Option<Room>,
}

/// A part of the receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// Index in the peer's table.
    pub(super) index: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// See the [module's documentation](self). The buffer is advertised to the peer in halves: a half
/// that was read whole is advertised again while the other is filled.
#[derive(Debug)]
pub(super) struct Incoming {
    half: u32,
    /// Bytes of each message that has not been read whole.
    messages: VecDeque<u32>,
    readable: u32,
    /// Where the next byte to be read lies.
    at: u32,
    /// Bytes that the peer may still write.
    open: u32,
    /// Bytes that were read and that it may not write yet.
    free: u32,
    /// The half that is advertised next, and the index in the peer's table.
    next: u32,
    index: u32,
    entries: u32,
    /// Numbers of the last message that has arrived, of the last that was read whole, and of the
    /// last that the peer may send.
    arrived: u16,
    read: u16,
    last: u16,
    /// Messages that it may send ahead.
    credits: u16,
}

impl Incoming {
    /// The half of a connection with a peer that was told of `credits` and of the first half of a
    /// buffer of `size` bytes, and has a table of so many `entries`.
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

    /// A message with data has arrived.
    ///
    /// # Errors
    /// [`Violation`] for one too many, or more bytes than there was room for.
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

    /// Bytes that can be read.
    pub(super) const fn readable(&self) -> u32 {
        self.readable
    }

    /// Up to `most` readable bytes, `skip` bytes behind the first, as far as they lie together:
    /// offset and number.
    pub(super) fn piece(&self, skip: u32, most: usize) -> (u32, usize) {
        let size = 2 * self.half;
        let at = (self.at + skip) % size;
        let here = self.readable.saturating_sub(skip).min(size - at);
        (at, most.min(here as usize))
    }

    /// The first bytes, of which there are as many, have been read.
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

    /// True if the peer should be told of more room.
    pub(super) fn is_due(&self) -> bool {
        // half of the messages is enough for one update each time
        let ahead = self.last.wrapping_sub(self.read);
        self.free >= self.half || self.credits - ahead >= self.credits.div_ceil(2)
    }

    /// What the peer is told, from then on.
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
