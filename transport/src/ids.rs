//! Numbers and keys of objects.

use core::fmt;

macro_rules! number24 {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// Takes the low 24 bits.
            #[must_use]
            pub const fn new(value: u32) -> Self {
                Self(value & 0x00FF_FFFF)
            }

            /// The number, below 2^24.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#08x})"), self.0)
            }
        }
    };
}

pub(crate) use number24;

number24! {
    /// Queue pair number.
    #[derive(PartialOrd, Ord)]
    Qpn
}

impl Qpn {
    /// General services interface, QP1.
    pub const GSI: Self = Self(1);
    /// Destination of multicast packets.
    pub const MULTICAST: Self = Self(0x00FF_FFFF);
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

number24! {
    /// Random number of a shared receive queue (`ibv_get_srq_num`).
    #[derive(PartialOrd, Ord)]
    SrqId
}

/// Completion queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);

/// Protection domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub(crate) u32);

impl PdId {
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// XRC domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XrcdId(pub u32);

/// Address handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AhId(pub u32);

/// Local key, for work requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LKey(pub u32);

impl fmt::Debug for LKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LKey({:#010x})", self.0)
    }
}

/// Remote key, for peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RKey(pub u32);

impl RKey {
    /// Next key of a window: lower eight bits incremented (`ibv_inc_rkey`).
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 & !0xFF | self.0.wrapping_add(1) & 0xFF)
    }
}

impl fmt::Debug for RKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RKey({:#010x})", self.0)
    }
}

/// Memory window: upper 24 bits of its keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowId(u32);

impl WindowId {
    /// Window of a key.
    #[must_use]
    pub const fn of(key: RKey) -> Self {
        Self(key.0 >> 8)
    }
}
