//! Bound of messages to an address that may be forged.
//!
//! A REQ with another host's address has the answers sent there. Its sender shows that it gets them
//! by a message with the REP's communication ID. Until then one REQ leads to few messages of its
//! own size, as in QUIC (RFC 9000, 8.1). An answer to a repeated REQ is not counted: it was asked
//! for.

/// Messages that a connection may still send without being asked.
pub(super) struct Credit(Option<u8>);

impl Credit {
    /// Credit of an address that this side has chosen, or that has shown that it gets messages.
    pub(super) const PROVEN: Self = Self(None);

    /// Credit of so many messages, one of which is kept for the end.
    pub(super) const fn new(messages: u8) -> Self {
        Self(Some(messages))
    }

    /// True if one more message may be sent, which is not the last.
    pub(super) const fn take(&mut self) -> bool {
        self.take_down_to(1)
    }

    /// True if one more message may be sent, which announces the end.
    pub(super) const fn take_last(&mut self) -> bool {
        self.take_down_to(0)
    }

    const fn take_down_to(&mut self, rest: u8) -> bool {
        match &mut self.0 {
            None => true,
            Some(left) if *left > rest => {
                *left -= 1;
                true
            }
            Some(_) => false,
        }
    }
}
