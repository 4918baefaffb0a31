//! PSNs and MSNs: 24 bits, wrapping.

use crate::ids::number24;

const MASK: u32 = 0x00FF_FFFF;
const HALF: u32 = 0x0080_0000;

number24! {
    /// Packet sequence number, ordered within half of the space from a reference.
    #[derive(derive_more::Display)]
    Psn
}

impl Psn {
    /// The number `n` later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n) & MASK)
    }

    /// The number before.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.plus(MASK)
    }

    /// Distance after `base`; `None` in the half before, the duplicate region (C9-19).
    #[must_use]
    pub const fn after(self, base: Self) -> Option<u32> {
        let distance = self.0.wrapping_sub(base.0) & MASK;
        if distance < HALF { Some(distance) } else { None }
    }

    /// True if before `base`.
    #[must_use]
    pub const fn is_before(self, base: Self) -> bool {
        self.after(base).is_none()
    }
}

number24! {
    /// Message sequence number: messages completed, modulo 2^24.
    Msn
}

impl Msn {
    /// The number after.
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
