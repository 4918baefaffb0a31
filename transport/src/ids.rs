//! Numbers that name things: queue pairs, completion queues, protection domains, keys of memory.

use core::fmt;

/// A number of 24 bits, as headers carry it.
macro_rules! number24 {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// The low 24 bits of `value`.
            #[must_use]
            pub const fn new(value: u32) -> Self {
                Self(value & 0x00FF_FFFF)
            }

            /// The number itself, below 2^24.
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
    /// A queue pair number.
    #[derive(PartialOrd, Ord)]
    Qpn
}

impl Qpn {
    /// The general services interface, QP1.
    pub const GSI: Self = Self(1);
    /// The destination of every multicast packet.
    pub const MULTICAST: Self = Self(0x00FF_FFFF);
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

number24! {
    /// Name of a shared receive queue of an adapter: a random number. An XRC SRQ is what peers name
    /// in the requests of their initiators; there it is the SRQ number (`ibv_get_srq_num`).
    #[derive(PartialOrd, Ord)]
    SrqId
}

/// Name of a completion queue of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);

/// Name of a protection domain of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub(crate) u32);

impl PdId {
    /// No protection domain: no region is in it.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Name of an XRC domain of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XrcdId(pub u32);

/// Name of an address handle of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AhId(pub u32);

/// The key by which the owner of a region names it in work requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LKey(pub u32);

impl fmt::Debug for LKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LKey({:#010x})", self.0)
    }
}

/// The key by which a peer names a region or a memory window in its requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RKey(pub u32);

impl RKey {
    /// The key that a memory window gets when it is bound again: its lower eight bits one further
    /// (`ibv_inc_rkey`).
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

/// Name of a memory window of an adapter: the upper 24 bits of its keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowId(u32);

impl WindowId {
    /// The window that has, or had, or may get, this key.
    #[must_use]
    pub const fn of(key: RKey) -> Self {
        Self(key.0 >> 8)
    }
}
