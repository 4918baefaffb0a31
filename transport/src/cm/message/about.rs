//! The message that an MRA or a REJ is about.

/// The message that another one is about ("message MRAed", 12.6.6; "message rejected", 12.6.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum About {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Another one, or none.
    Other = 2,
    /// Reserved.
    Reserved = 3,
}

impl About {
    /// The value of the upper two bits of a byte.
    pub(super) const fn from_upper_bits(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    pub(super) const fn upper_bits(self) -> u8 {
        (self as u8) << 6
    }
}
