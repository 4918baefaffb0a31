use super::fields::{At, Bits, Field, in_bits};

/// Message that an MRA (12.6.6) or REJ (12.6.7) is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum About {
    /// REQ.
    Req = 0,
    /// REP.
    Rep = 1,
    /// Another, or none.
    Other = 2,
    /// Reserved.
    Reserved = 3,
}

impl About {
    const fn of(bits: u32) -> Self {
        match bits {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }
}

in_bits! {
    About: bits => Self::of(bits), value => value as u32;
}
