//! Limit on messages to a possibly forged address, as in QUIC (RFC 9000, 8.1).
//!
//! A message with the REP's communication ID proves the address. Responses to retransmitted REQs do
//! not count.

/// Unsolicited messages left.
pub(super) struct Credit(Option<u8>);

impl Credit {
    /// Proven, or chosen by this side.
    pub(super) const PROVEN: Self = Self(None);

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
