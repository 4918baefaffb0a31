//! Limit on messages to an address that may be forged.
//!
//! A forged REQ directs responses at another host. A message with the REP's communication ID proves
//! the address. Until then, one REQ causes few messages, as in QUIC (RFC 9000, 8.1); responses to
//! retransmitted REQs do not count.

/// Unsolicited messages that a connection may send.
pub(super) struct Credit(Option<u8>);

impl Credit {
    /// A proven address, or one that this side chose.
    pub(super) const PROVEN: Self = Self(None);

    /// Credit of `messages`, the last for the DREQ.
    pub(super) const fn new(messages: u8) -> Self {
        Self(Some(messages))
    }

    /// Takes a credit, except the last.
    pub(super) const fn take(&mut self) -> bool {
        self.take_down_to(1)
    }

    /// Takes a credit for the DREQ.
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
