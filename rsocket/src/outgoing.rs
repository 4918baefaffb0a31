//! The sending half of a connection: which bytes may go where, and when.

use std::collections::VecDeque;

use super::wire::Span;

/// Places of the send queue beside those for data, for messages without.
pub(super) const CONTROL_PLACES: u32 = 4;
/// Most bytes of one message: the peer may read the first while the next are under way.
const MOST: u32 = 1 << 16;

/// What is sent next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Where its bytes are put into the send buffer; `None`: they go with the request.
    pub(super) at: Option<u32>,
    pub(super) length: u32,
    /// The peer's memory.
    pub(super) address: u64,
    pub(super) key: u32,
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Number of the last message with data, and of the last one that the peer takes.
    sent: u16,
    last: u16,
    /// What is left of the peer's buffer that is being filled.
    target: Span,
    /// Index in the table of the entry that comes next, and their number.
    next: u32,
    entries: u32,
    buffer: Ring,
    /// Bytes that go with the request.
    inline: u32,
    /// Free places of the send queue.
    places: u32,
    control: u32,
    /// What was posted and is not complete, in order.
    posted: VecDeque<Posted>,
}

#[derive(Debug)]
enum Posted {
    /// Data, with so many bytes of the send buffer.
    Data(u32),
    Control,
}

impl Outgoing {
    /// The half towards a peer that takes messages up to the one numbered `credits`, with this
    /// first buffer, and a table of so many `entries` for those that follow. `size` is that of the
    /// send buffer, `places` that of the send queue without [`CONTROL_PLACES`].
    pub(super) fn new(
        credits: u16,
        first: Span,
        entries: u32,
        size: u32,
        inline: u32,
        places: u32,
    ) -> Self {
        Self {
            sent: 0,
            last: credits,
            target: first,
            next: 1 % entries,
            entries,
            buffer: Ring { size, head: 0, used: 0 },
            inline,
            places,
            control: CONTROL_PLACES,
            posted: VecDeque::new(),
        }
    }

    /// Index of the table's entry that is needed before more can be sent.
    pub(super) fn wanted(&self) -> Option<u32> {
        (self.target.length == 0).then_some(self.next)
    }

    /// That entry, which the peer writes anew only when it has got all that fits there.
    pub(super) fn fill(&mut self, entry: Span) {
        self.target = entry;
        self.next = (self.next + 1) % self.entries;
    }

    /// The peer takes messages up to this one.
    pub(super) fn credit(&mut self, last: u16) {
        self.last = last;
    }

    /// True if [`next`](Self::next) has something for one byte.
    pub(super) fn can_send(&self) -> bool {
        self.may_send() && (self.inline > 0 || self.buffer.contiguous() > 0)
    }

    fn may_send(&self) -> bool {
        self.sent != self.last && self.places > 0 && self.target.length > 0
    }

    /// The next message, of `left` bytes that the program wants to send; `None` if nothing can be
    /// sent now.
    pub(super) fn next(&self, left: usize) -> Option<Segment> {
        if !self.may_send() {
            return None;
        }
        let Span { address, key, length } = self.target;
        self.place(Span { address, key, length: length.min(u32::try_from(left).unwrap_or(MOST)) })
    }

    /// The first piece of what goes straight to memory that the peer has mapped: it needs neither
    /// credits nor a buffer of the peer.
    pub(super) fn direct(&self, to: Span) -> Option<Segment> {
        if self.places > 0 { self.place(to) } else { None }
    }

    fn place(&self, Span { address, key, length }: Span) -> Option<Segment> {
        let length = length.min(MOST);
        let (at, length) = if length <= self.inline {
            (None, length)
        } else {
            (Some(self.buffer.head), length.min(self.buffer.contiguous()))
        };
        (length > 0).then_some(Segment { at, length, address, key })
    }

    /// The message that [`next`](Self::next) has found is posted.
    pub(super) fn post(&mut self, segment: &Segment) {
        self.sent = self.sent.wrapping_add(1);
        self.target.address = self.target.address.wrapping_add(segment.length.into());
        self.target.length -= segment.length;
        self.post_direct(segment);
    }

    /// The piece that [`direct`](Self::direct) has found is posted.
    pub(super) fn post_direct(&mut self, segment: &Segment) {
        let buffered = if segment.at.is_some() { segment.length } else { 0 };
        self.buffer.take(buffered);
        self.places -= 1;
        self.posted.push_back(Posted::Data(buffered));
    }

    /// True if there was a place for a message without data, which is posted from then on.
    pub(super) fn control(&mut self) -> bool {
        if self.control == 0 {
            return false;
        }
        self.control -= 1;
        self.posted.push_back(Posted::Control);
        true
    }

    /// The oldest of what was posted is complete.
    pub(super) fn completed(&mut self) {
        match self.posted.pop_front() {
            Some(Posted::Data(bytes)) => {
                self.buffer.used -= bytes;
                self.places += 1;
            }
            Some(Posted::Control) => self.control += 1,
            None => {}
        }
    }

    /// True if all that was posted is complete.
    pub(super) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }
}

/// Bytes of the send buffer, taken and given back in order.
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
