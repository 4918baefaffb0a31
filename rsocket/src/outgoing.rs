//! The sending half of a connection.

use std::collections::VecDeque;

use super::wire::RemoteSge;

/// Send slots for messages without data.
pub(super) const CONTROL_SLOTS: u32 = 4;
/// Most bytes of a message: smaller messages let the peer read earlier.
const MOST: u32 = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Offset in the send buffer; `None`: inline.
    pub(super) at: Option<u32>,
    pub(super) length: u32,
    /// Destination in the peer's memory.
    pub(super) address: u64,
    pub(super) key: u32,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    /// Numbers of the last sent and permitted message.
    sent: u16,
    last: u16,
    /// Rest of the peer's current buffer.
    target: RemoteSge,
    next: u32,
    entries: u32,
    buffer: Ring,
    /// Inline limit in bytes.
    inline: u32,
    slots: u32,
    control: u32,
    /// Posted and incomplete requests, in order.
    posted: VecDeque<Posted>,
}

#[derive(Debug)]
enum Posted {
    /// Data, with its bytes in the send buffer.
    Data(u32),
    Control,
}

impl Outgoing {
    /// `size` is the send buffer's, `slots` the send queue's without [`CONTROL_SLOTS`]. The rest
    /// is the peer's.
    pub(super) fn new(
        credits: u16,
        first: RemoteSge,
        entries: u32,
        size: u32,
        inline: u32,
        slots: u32,
    ) -> Self {
        Self {
            sent: 0,
            last: credits,
            target: first,
            next: 1 % entries,
            entries,
            buffer: Ring { size, head: 0, used: 0 },
            inline,
            slots,
            control: CONTROL_SLOTS,
            posted: VecDeque::new(),
        }
    }

    /// Index of the table entry needed to send more.
    pub(super) fn wanted(&self) -> Option<u32> {
        (self.target.length == 0).then_some(self.next)
    }

    /// The peer rewrites `entry` only once used up.
    pub(super) fn fill(&mut self, entry: RemoteSge) {
        self.target = entry;
        self.next = (self.next + 1) % self.entries;
    }

    pub(super) fn credit(&mut self, last: u16) {
        self.last = last;
    }

    /// True if [`next`](Self::next) has room for one byte.
    pub(super) fn can_send(&self) -> bool {
        self.may_send() && (self.inline > 0 || self.buffer.contiguous() > 0)
    }

    fn may_send(&self) -> bool {
        self.sent != self.last && self.slots > 0 && self.target.length > 0
    }

    /// `None` if none can be sent now.
    pub(super) fn next(&self, left: usize) -> Option<Segment> {
        if !self.may_send() {
            return None;
        }
        let length = self.target.length.min(u32::try_from(left).unwrap_or(MOST));
        self.place(RemoteSge { length, ..self.target })
    }

    /// First segment of a write to the peer's mapping, without credits or peer buffer.
    pub(super) fn direct(&self, to: RemoteSge) -> Option<Segment> {
        if self.slots > 0 { self.place(to) } else { None }
    }

    fn place(&self, RemoteSge { address, key, length }: RemoteSge) -> Option<Segment> {
        let length = length.min(MOST);
        let (at, length) = if length <= self.inline {
            (None, length)
        } else {
            (Some(self.buffer.head), length.min(self.buffer.contiguous()))
        };
        (length > 0).then_some(Segment { at, length, address, key })
    }

    pub(super) fn post(&mut self, segment: &Segment) {
        self.sent = self.sent.wrapping_add(1);
        self.target.address = self.target.address.wrapping_add(segment.length.into());
        self.target.length -= segment.length;
        self.post_direct(segment);
    }

    pub(super) fn post_direct(&mut self, segment: &Segment) {
        let buffered = if segment.at.is_some() { segment.length } else { 0 };
        self.buffer.take(buffered);
        self.slots -= 1;
        self.posted.push_back(Posted::Data(buffered));
    }

    /// False without a free control slot.
    pub(super) fn control(&mut self) -> bool {
        if self.control == 0 {
            return false;
        }
        self.control -= 1;
        self.posted.push_back(Posted::Control);
        true
    }

    pub(super) fn completed(&mut self) {
        match self.posted.pop_front() {
            Some(Posted::Data(bytes)) => {
                self.buffer.used -= bytes;
                self.slots += 1;
            }
            Some(Posted::Control) => self.control += 1,
            None => {}
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }
}

#[derive(Debug)]
struct Ring {
    size: u32,
    head: u32,
    used: u32,
}

impl Ring {
    fn contiguous(&self) -> u32 {
        (self.size - self.used).min(self.size - self.head)
    }

    fn take(&mut self, bytes: u32) {
        self.head = (self.head + bytes) % self.size;
        self.used += bytes;
    }
}
