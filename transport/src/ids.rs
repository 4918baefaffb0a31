//! Numbers and keys of objects.

use derive_more::Display;

macro_rules! number24 {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, derive_more::Debug)]
        #[debug("{}({_0:#08x})", stringify!($name))]
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
    };
}

pub(crate) use number24;

number24! {
    /// Queue pair number.
    #[derive(PartialOrd, Ord, Display)]
    #[display("{_0:#08x}")]
    Qpn
}

impl Qpn {
    /// General services interface, QP1.
    pub const GSI: Self = Self(1);
    /// Destination of multicast packets.
    pub const MULTICAST: Self = Self(0x00FF_FFFF);
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, derive_more::Debug)]
#[debug("LKey({_0:#010x})")]
pub struct LKey(pub u32);

/// Remote key, for peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, derive_more::Debug)]
#[debug("RKey({_0:#010x})")]
pub struct RKey(pub u32);

impl RKey {
    /// Next key of a window: lower eight bits incremented (`ibv_inc_rkey`).
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 & !0xFF | self.0.wrapping_add(1) & 0xFF)
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
