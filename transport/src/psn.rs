//! Packet and message sequence numbers: 24 bits, wrapping.

use core::fmt;

use crate::ids::number24;

const MASK: u32 = 0x00FF_FFFF;
const HALF: u32 = 0x0080_0000;

number24! {
    /// A packet sequence number: 24 bits, compared in the half of the number space that starts at a
    /// reference.
    Psn
}

impl Psn {
    /// The number `n` packets later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n) & MASK)
    }

    /// The number one packet earlier.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.plus(MASK)
    }

    /// Number of packets that `self` lies after `base`, or `None` when it lies before it. Half of
    /// the number space counts as after (C9-19's valid region and its complement, the duplicate
    /// region).
    #[must_use]
    pub const fn after(self, base: Self) -> Option<u32> {
        let distance = self.0.wrapping_sub(base.0) & MASK;
        if distance < HALF { Some(distance) } else { None }
    }

    /// True if `self` lies before `base`.
    #[must_use]
    pub const fn is_before(self, base: Self) -> bool {
        self.after(base).is_none()
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

number24! {
    /// A message sequence number: the messages that the responder has completed, modulo 2^24.
    Msn
}

impl Msn {
    /// The number of the next message.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_and_compares_across_the_wrap() {
        let last = Psn::new(0xFF_FFFF);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert_eq!(Psn::new(3).after(last), Some(4));
        assert_eq!(last.after(Psn::new(3)), None);
        assert!(last.is_before(Psn::new(0)));
        assert_eq!(Psn::new(HALF - 1).after(Psn::new(0)), Some(HALF - 1));
        assert_eq!(Psn::new(HALF).after(Psn::new(0)), None);
    }
}
